"""Memory of four FastAPI workers with all that belongs to them, supervisor and guardian included, after the same work.

It is PSS: a page that several processes share counts once. Each variant is started anew for a round, and alone, so that
it shares with nobody else of its kind.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.clients.players import client, seeded
from benchmarks.harness.rows import Case, Key, Mark, Opened, Row, Sample, Suite, ratio, single
from benchmarks.servers.plain import plain
from benchmarks.servers.supervised import NAME as OURS
from benchmarks.servers.supervised import supervised
from benchmarks.servers.variant import Variant

WORKERS = 4
SESSIONS = 200
STEPS = 5
APP = "gym"
PLAIN = "plain"
CASE = "after work"
MIB = 1 << 20

VARIANTS: dict[str, Callable[[Path], Variant]] = {
    OURS: lambda folder: supervised(folder, APP, workers=WORKERS),
    PLAIN: lambda folder: plain(folder, APP, workers=WORKERS),
}


async def _work(port: int) -> None:
    async with client(port) as session:
        players = await seeded(session, SESSIONS)
        for _ in range(STEPS):
            await asyncio.gather(*(player.step() for player in players))


def measure(name: str) -> Sample:
    """Start one, have it work, look."""
    with tempfile.TemporaryDirectory() as folder:
        variant = VARIANTS[name](Path(folder))
        try:
            asyncio.run(_work(variant.port))
            return {"pss": variant.pss(), "processes": len(variant.pids())}
        finally:
            variant.stop()


@contextlib.contextmanager
def opened(wanted: frozenset[Key]) -> Iterator[Opened]:
    """Every variant is started by its own case."""
    yield Opened([Case(CASE, name, partial(measure, name)) for _, name in sorted(wanted)])


ROWS = (
    Row(
        "memory",
        "memory (PSS) of 4 FastAPI workers, over plain ones",
        "",
        ratio("pss", (CASE, OURS), (CASE, PLAIN)),
        Mark(1.05, 1.0),
    ),
    Row("memory-ours", "gym-supervise: all processes", "MiB", single("pss", (CASE, OURS), times=1 / MIB)),
    Row("memory-plain", "plain workers: all processes", "MiB", single("pss", (CASE, PLAIN), times=1 / MIB)),
)

SUITE = Suite("memory", "memory of 4 FastAPI workers", 3, ROWS, opened, warms=False)
