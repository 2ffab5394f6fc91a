"""Fleets in memory whose steps can be stopped and let go on: what one router knows may be made old before it acts."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from conformance.memory import MemoryFleet, Worker
from conformance.player import Player
from conformance.script import Case, Step

WINDOW = 0.4


@contextlib.asynccontextmanager
async def fleet_of(workers: int = 3, **options: Any) -> AsyncIterator[tuple[MemoryFleet, Player]]:
    """A fleet of conformance servers, and a player of steps on it; `options` are the fields of a case."""
    affinity = {"session_close_retry_window_seconds": WINDOW, **options.pop("affinity", {})}
    case = Case("", "", [], workers=workers, affinity=affinity, **options)
    with tempfile.TemporaryDirectory() as folder:
        async with MemoryFleet(case, Path(folder), affinity=affinity) as fleet:
            yield fleet, Player(fleet, case)


async def play(player: Player, *steps: Step) -> None:
    """Play steps in order."""
    for step in steps:
        await player.do(step)


class Gate:
    """Stops whoever comes to `passes` until it is opened."""

    def __init__(self, *, at: int = 1) -> None:
        self._open = asyncio.Event()
        self._reached = asyncio.Event()
        self._wanted = at

    async def passes(self) -> None:
        """Come here, and wait."""
        self._wanted -= 1
        if self._wanted <= 0:
            self._reached.set()
        await self._open.wait()

    async def reached(self) -> None:
        """Wait until as many as were wanted are waiting."""
        await asyncio.wait_for(self._reached.wait(), 10)

    def open(self) -> None:
        """Let them go on."""
        self._open.set()


def after_find(worker: Worker, gate: Gate) -> None:
    """What this worker has read in the table is old by the time it acts on it."""
    claims = worker.routing._claims
    find = claims.find

    async def slow(session: str) -> Any:
        found = await find(session)
        await gate.passes()
        return found

    claims.find = slow  # type: ignore[method-assign]
    claims.owner = lambda _: None  # type: ignore[method-assign, assignment]  # what it says is acted on in the same step


def before_relay(worker: Worker, act: Callable[[Any], Awaitable[None]]) -> None:
    """Something happens before each request that this worker sends to another one; it is told the order."""
    client = worker.routing._client
    assert client is not None

    def late(relay: Callable[..., Awaitable[Any]]) -> Any:
        async def relay_late(order: Any, *arguments: Any) -> Any:
            await act(order)
            return await relay(order, *arguments)

        return relay_late

    client.relay = late(client.relay)  # type: ignore[method-assign]
    client.relay_websocket = late(client.relay_websocket)  # type: ignore[method-assign]


async def end(worker: Worker, session: str) -> None:
    """The worker's claim of the session ends, as in a sweep."""
    claims = worker.routing._claims
    own = claims.book.get(session)
    assert own is not None
    assert claims.give_back(own)


async def claim(worker: Worker, session: str) -> None:
    """The worker claims the session, as for a request."""
    own = await worker.routing._claims.take(session)
    own.kept = True
    worker.routing._claims.book.enter(own)
    worker.routing._claims.book.leave(own, asyncio.get_running_loop().time())


def runs(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """A coroutine as a test, which ends."""

    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), 60))

    run.__doc__ = test.__doc__
    run.__name__ = test.__name__
    return run
