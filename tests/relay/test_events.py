"""Streams of small events, and small replies: what leaves when, and with how many writes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from relay.conftest import Run
from relay.pair import OWNER, Client, Pair, reply, until

from supervisor.relay.outcomes import Taken

START = {"type": "http.response.start", "status": 200, "headers": []}


def piece(data: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


@pytest.mark.parametrize("sender", ["app", "another task"])
def test_events_as_they_come(run: Run, sender: str) -> None:
    """An event reaches the client while the app waits for something else, and so does a head without any body."""
    seen = asyncio.Event()

    async def stream(send: Any) -> None:
        for n in range(5):
            await send(piece(b"event %d\n" % n) if n else START)
            await seen.wait()
            seen.clear()
        await send(piece(b"", more=False))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await (stream(send) if sender == "app" else asyncio.create_task(stream(send)))

    async def test() -> None:
        async with Pair(app) as pair:
            client = Client()
            relay = asyncio.ensure_future(pair.relay(client))
            for n in range(5):
                await until(lambda n=n: len(client.messages) == n + 1)  # type: ignore[misc]
                seen.set()
            assert await relay == Taken()
            assert client.pieces == [b"event 1\n", b"event 2\n", b"event 3\n", b"event 4\n", b""]

    run(test())


def test_events_ready_together_leave_together(run: Run) -> None:
    """Events that are sent without a wait between them leave in one write and reach the client as one message."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        for n in range(100):
            await send(piece(b"%d\n" % n))
        await asyncio.sleep(0)
        await send(piece(b"", more=False))

    async def test() -> None:
        async with Pair(app) as pair:
            outcome, client = await pair.ask()
            assert outcome == Taken()
            assert client.body == b"".join(b"%d\n" % n for n in range(100))
            assert len(client.pieces) <= 2

    run(test())


def test_pieces_that_wait_for_the_client_leave_together(run: Run) -> None:
    """Events that came one by one while the client was slow reach it as one message."""
    sent = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal sent
        await send(START)
        for n in range(100):
            await send(piece(b"%d\n" % n))
            await asyncio.sleep(0)
            sent += 1
        await send(piece(b"", more=False))

    async def test() -> None:
        async with Pair(app) as pair:
            client = Client()
            client.gate.clear()
            relay = asyncio.ensure_future(pair.relay(client))
            await until(lambda: sent == 100)
            (link,) = pair.client._peers[OWNER]._links
            await until(lambda: len(link.frames) > 20)
            client.gate.set()
            assert await relay == Taken()
            assert client.body == b"".join(b"%d\n" % n for n in range(100))
            assert len(client.pieces) < 50

    run(test())


def test_one_write_each(run: Run) -> None:
    """A small request is one write, and so is its reply."""
    writes: list[int] = []

    async def test() -> None:
        async with Pair(reply(body=b"y" * 200)) as pair:
            await pair.ask()
            (peer,) = pair.client._peers.values()
            (channel,) = pair.server.channels
            for end in (peer._idle[0], channel):
                transport = end._transport if end is channel else end.transport  # type: ignore[union-attr]

                class Counting:
                    def __init__(self, transport: Any) -> None:
                        self._wrapped = transport

                    def __getattr__(self, name: str) -> Any:
                        return getattr(self._wrapped, name)

                    def write(self, data: bytes) -> None:
                        writes.append(len(data))
                        self._wrapped.write(data)

                setattr(end, "_transport" if end is channel else "transport", Counting(transport))
            assert (await pair.ask("POST", body=b"x" * 200))[0] == Taken()
            assert len(writes) == 2

    run(test())
