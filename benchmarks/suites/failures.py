"""Kill and reload under load: how many sessions were right, wrong or refused, here and with the means of today.

Players play short sessions one after the other over pooled connections. In the middle a worker that has sessions is
killed with SIGKILL; or all workers are replaced, as an operator would: `reload`, or one backend restarted after the
other. A request that fails is repeated for a while, unless the reply says that the session is over. A session is

    right     when every one of its requests was
    wrong     when one was answered with 200 and a count that is not the session's, which nobody notices
    refused   when some were answered with an error or not at all, and none wrongly
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import aiohttp

from benchmarks.clients.players import Player, client
from benchmarks.harness.rows import Case, Key, Mark, Opened, Row, Sample, Suite, Unmeasurable, single
from benchmarks.servers import COOKIE, SECRET
from benchmarks.servers.plain import plain
from benchmarks.servers.proxies import haproxy_cookie, haproxy_stick, nginx
from benchmarks.servers.supervised import NAME as OURS
from benchmarks.servers.supervised import supervised
from benchmarks.servers.variant import Variant

WORKERS = 4
APP = "gym"
PLAYERS = 48
STEPS = 11
LONGEST_PAUSE_SECONDS = 0.15
CALM_SECONDS = 1.0  # before the kill or the reload
AFTER_SECONDS = 2.5
RETRY_SECONDS = 0.1
PATIENCE_SECONDS = 3.0  # for which a request is repeated that was answered with an error; 410 says that it is no use
WINDOW_SECONDS = 0.5  # for which an ended session is kept: a reload waits for it
PLAIN = "plain"
KILL, RELOAD = "kill", "reload"

AFFINITY = {
    "preset": "gym-resources",
    "cookie": COOKIE,
    "secret": SECRET,
    "session_close_retry_window_seconds": WINDOW_SECONDS,
}

VARIANTS: dict[str, Callable[[Path], Variant]] = {
    OURS: lambda folder: supervised(folder, APP, workers=WORKERS, affinity=AFFINITY),
    "haproxy-stick": lambda folder: haproxy_stick(folder, APP, workers=WORKERS),
    "haproxy-cookie": lambda folder: haproxy_cookie(folder, APP, workers=WORKERS),
    "nginx": lambda folder: nginx(folder, APP, workers=WORKERS),
    PLAIN: lambda folder: plain(folder, APP, workers=WORKERS),
}


class Game:
    """Players at one variant until `over`; `tally` counts their sessions."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.tally: Counter[str] = Counter()
        self.over = False
        self._session = session
        self._playing: set[Player] = set()

    async def play(self) -> None:
        """One player: session after session."""
        while not self.over:
            player = Player(self._session)
            self._playing.add(player)
            try:
                await self._one(player)
            finally:
                self._playing.discard(player)
            self.tally[player.outcome] += 1

    async def _one(self, player: Player) -> None:
        for act in (player.seed, *[player.step] * STEPS, player.end):
            patient_until = time.monotonic() + PATIENCE_SECONDS
            while not await act():
                if player.lost or time.monotonic() > patient_until:
                    return
                await asyncio.sleep(RETRY_SECONDS)
            await asyncio.sleep(random.uniform(0, LONGEST_PAUSE_SECONDS))

    def busiest(self) -> int:
        """The worker that has the most of the sessions that are being played."""
        return Counter(player.pid for player in self._playing if player.pid).most_common(1)[0][0]


async def _play(variant: Variant, kind: str) -> Counter[str]:
    async with client(variant.port) as session:
        game = Game(session)
        players = [asyncio.create_task(game.play()) for _ in range(PLAYERS)]
        try:
            await asyncio.sleep(CALM_SECONDS)
            if kind == KILL:
                variant.kill(game.busiest())
            else:
                assert variant.reload is not None
                await asyncio.to_thread(variant.reload)
            await asyncio.sleep(AFTER_SECONDS)
            game.over = True
            await asyncio.gather(*players)
        finally:
            for player in players:
                player.cancel()
        return game.tally


def disturbed(name: str, kind: str) -> Sample:
    """A variant of its own for each run: what one leaves behind is not the next one's."""
    with tempfile.TemporaryDirectory() as folder:
        variant = VARIANTS[name](Path(folder))
        try:
            start = time.monotonic()
            tally = asyncio.run(_play(variant, kind))
        finally:
            variant.stop()
    if not tally.total():
        raise Unmeasurable("no session was played")
    return {
        "right": tally["right"],
        "wrong": tally["wrong"],
        "refused": tally["refused"],
        "seconds": time.monotonic() - start,
    }


@contextlib.contextmanager
def opened(wanted: frozenset[Key]) -> Iterator[Opened]:
    """Every variant is started by its own case."""
    yield Opened([Case(kind, name, partial(disturbed, name, kind)) for kind, name in sorted(wanted)])


def _rows() -> Iterator[Row]:
    for kind, what in ((KILL, "a worker killed"), (RELOAD, "all workers replaced")):
        for outcome in ("right", "wrong", "refused"):
            for name in VARIANTS:
                if kind == RELOAD and name == PLAIN:
                    continue  # its sessions are wrong before anything is replaced
                mark = Mark(0) if name == OURS and outcome == "wrong" else None
                row = f"{kind}-{outcome}-{name}"
                yield Row(row, f"{what}: {outcome}", "sessions", single(outcome, (kind, name)), mark, variant=name)


SUITE = Suite("failures", "a worker killed, and all replaced, under load", 3, tuple(_rows()), opened, warms=False)
