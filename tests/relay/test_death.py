"""An owner that is SIGKILLed: a real process, at every stage of a request."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from relay.conftest import Run
from relay.pair import OWNER, Client, scope_of, until

from supervisor.relay.body import BodyReplay
from supervisor.relay.client import RelayClient
from supervisor.relay.outcomes import Gone, Order, Outcome, OwnerLost, Taken

ROOT = Path(__file__).parents[2]


class Owner:
    """A process that owns, and a client of it. `row`: what its row says; the process itself is never waited for."""

    def __init__(self, path: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/relay/owner_process.py"), path],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        self.row = True
        self.read("ready")
        self.client = RelayClient(
            path_of=lambda _: path,
            is_live=lambda _: self.row,
            pid_of=lambda _: self.process.pid,
            uid=os.getuid(),
            reach_seconds=60.0,
        )

    def read(self, word: str) -> None:
        """Wait until the process has printed `word`."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == word + "\n"

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)

    async def relay(self, client: Client, path: str, mode: str = "owned") -> Outcome:
        scope = scope_of("POST", path)
        order = Order(OWNER, mode)  # type: ignore[arg-type]
        return await self.client.relay(order, scope, BodyReplay(client.receive), client.send)


@asynccontextmanager
async def owner() -> AsyncIterator[Owner]:
    with tempfile.TemporaryDirectory(prefix=f"gsv-relay-{os.getpid()}-") as folder:
        made = Owner(f"{folder}/{OWNER}.sock")
        try:
            yield made
        finally:
            await made.client.close()
            made.kill()
            made.process.wait()
            assert made.process.stdout is not None
            made.process.stdout.close()


BIG = [b"x" * 100_000] * 30
CASES: dict[str, tuple[str, str, list[bytes], Outcome]] = {
    "before it answers, owned": ("/admit", "owned", [b"x"], OwnerLost(started=False)),
    "before it answers, placed": ("/admit", "placed", [b"x"], Gone()),
    "before it answers, body to follow": ("/admit", "owned", BIG, Gone()),
    "in the app's first line, owned": ("/first-line", "owned", [b"x"], OwnerLost(started=False)),
    "in the app's first line, placed": ("/first-line", "placed", [b"x"], OwnerLost(started=False)),
    "in the app's first line, body to follow": ("/first-line", "owned", BIG, OwnerLost(started=False)),
    "while it reads": ("/upload", "owned", BIG, OwnerLost(started=False)),
    "behind the head": ("/head", "owned", [b"x"], OwnerLost(started=True)),
    "in the middle of the reply": ("/middle", "owned", [b"x"], OwnerLost(started=True)),
    "in the middle, body to follow": ("/middle", "placed", BIG, OwnerLost(started=True)),
    "behind the reply": ("/after", "owned", [b"x"], Taken()),
}


@pytest.mark.parametrize(("path", "mode", "chunks", "outcome"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("pooled", [False, True], ids=["new connection", "pooled"])
def test_owner_is_killed(run: Run, path: str, mode: str, chunks: list[bytes], outcome: Outcome, pooled: bool) -> None:
    """What the router hears tells whether the app may have run and whether a byte was sent; a reply never ends cleanly
    that the owner did not end. Nobody but the process itself tells that it is dead.
    """

    async def test() -> None:
        async with owner() as made:
            if pooled:
                assert await made.relay(Client(b"x"), "/") == Taken()
            client = Client(*chunks)
            assert await made.relay(client, path, mode) == outcome
            assert client.started is (outcome in (Taken(), OwnerLost(started=True)))
            assert client.complete is (outcome == Taken())
            assert await made.relay(Client(b"x"), "/", "placed") == Gone()
            assert made.client.busy == made.client.idle == 0

    run(test())


def test_killed_with_many_in_flight(run: Run) -> None:
    """Every request that is in flight hears of the death, each in its own stage."""

    async def test() -> None:
        async with owner() as made:
            waiting = [asyncio.ensure_future(made.relay(Client(b"x"), "/wait")) for _ in range(5)]
            for _ in waiting:
                await asyncio.to_thread(made.read, "waits")
            streaming = [asyncio.ensure_future(made.relay(Client(b"x"), "/stream")) for _ in range(5)]
            for _ in streaming:
                await asyncio.to_thread(made.read, "streams")
            await until(lambda: made.client.busy == 10)
            made.kill()
            assert await asyncio.gather(*waiting) == [OwnerLost(started=False)] * 5
            assert await asyncio.gather(*streaming) == [OwnerLost(started=True)] * 5

    run(test())


def test_stopped_owner_is_waited_for(run: Run) -> None:
    """An owner that is stopped is not dead: its requests wait, and are served when it goes on."""

    async def test() -> None:
        async with owner() as made:
            assert await made.relay(Client(b"x"), "/") == Taken()
            made.process.send_signal(signal.SIGSTOP)
            relays = [asyncio.ensure_future(made.relay(Client(b"x"), "/")) for _ in range(3)]
            await until(lambda: made.client.busy == 3)
            assert not any(relay.done() for relay in relays)
            made.process.send_signal(signal.SIGCONT)
            assert await asyncio.gather(*relays) == [Taken()] * 3

    run(test())
