"""How new sessions spread over four workers: 200 started at once over 32 connections, or over one for each.

A round's sessions stay open, so the product's figure is of all sessions so far; plain workers keep a session where it
was started, and theirs is of one round.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.clients.players import POOL, Player, client, seeded
from benchmarks.harness.rows import Case, Key, Mark, Opened, Row, Sample, Suite, single
from benchmarks.servers.plain import plain
from benchmarks.servers.supervised import NAME as OURS
from benchmarks.servers.supervised import supervised
from benchmarks.servers.variant import Variant

WORKERS = 4
SESSIONS = 200
APP = "gym"
POOLED, SINGLE = "pooled", "single"
PLAIN = "plain"


async def _start(port: int, pool: int) -> list[Player]:
    async with client(port, pool=pool) as session:
        return await seeded(session, SESSIONS)


def start(variant: Variant, pool: int) -> Sample:
    """Start them, and count."""
    before, relayed = variant.cpu(), variant.relayed() if variant.relayed else 0
    players = asyncio.run(_start(variant.port, pool))
    used = variant.cpu() - before
    if variant.sessions is not None:
        counts = variant.sessions()
    else:
        found = Counter(player.pid for player in players)
        counts = [*found.values(), *[0] * (WORKERS - len(found))]
    sample = {"apart": float(max(counts) - min(counts)), "cpu": used / SESSIONS}
    if variant.relayed is not None:
        sample["relays"] = (variant.relayed() - relayed) / SESSIONS
    return sample


@contextlib.contextmanager
def opened(wanted: frozenset[Key]) -> Iterator[Opened]:
    """Both variants."""
    found = Opened()
    with contextlib.ExitStack() as stack:
        for name in (OURS, PLAIN):
            if not any(key[1] == name for key in wanted):
                continue
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            serve = supervised if name == OURS else plain
            variant = serve(folder, APP, workers=WORKERS)
            stack.callback(variant.stop)
            found.cases.append(Case(POOLED, name, partial(start, variant, POOL)))
            found.cases.append(Case(SINGLE, name, partial(start, variant, 0)))
        yield found


def _rows() -> Iterator[Row]:
    for name in (OURS, PLAIN):
        mark = Mark(2, 1) if name == OURS else None
        for case, how in ((POOLED, "32 connections"), (SINGLE, "a connection each")):
            what = f"200 sessions, {how}: most - fewest"
            yield Row(f"placement-{case}-{name}", what, "sessions", single("apart", (case, name)), mark, name)
            if name == OURS:
                figure = single("relays", (case, name))
                yield Row(
                    f"placement-{case}-relays", f"starts that another worker took, {how}", "", figure, variant=name
                )
            figure = single("cpu", (case, name), times=1e6)
            yield Row(f"placement-{case}-cpu-{name}", f"CPU of a start, {how}", "us", figure, variant=name)


SUITE = Suite("placement", "how new sessions spread over workers", 12, tuple(_rows()), opened)
