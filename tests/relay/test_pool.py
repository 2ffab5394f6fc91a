"""Connections and tasks: how many a request takes, and what becomes of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from relay.conftest import Run
from relay.pair import OWNER, Client, Pair, echo, reply, scope_of, until

from supervisor.relay import peer as peer_module
from supervisor.relay.body import BodyReplay
from supervisor.relay.frames import Ack, Open
from supervisor.relay.outcomes import Order, Taken


def test_no_task_per_message(run: Run) -> None:
    """A small request takes one task at the owner and none at the acceptor; a stream takes no more, however long."""

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(300):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await (stream if scope["path"] == "/stream" else echo)(scope, receive, send)

    async def test() -> None:
        made = 0
        loop = asyncio.get_running_loop()

        def factory(loop: Any, coroutine: Any, **more: Any) -> Any:
            nonlocal made
            made += 1
            return asyncio.Task(coroutine, loop=loop, **more)

        async with Pair(app) as pair:
            await pair.ask()
            loop.set_task_factory(factory)
            await pair.ask("POST", "/", b"x")
            assert made == 1
            await pair.ask("GET", "/stream")
            assert made == 2
            await pair.relay(Client(*[b"x" * 1000] * 300))  # one more, which carries the body up
            assert made == 4
            loop.set_task_factory(None)

    run(test())


def test_two_workers_that_relay_to_each_other(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request never waits for a place in a pool: apps that call each other through the relay do not dead-lock."""
    monkeypatch.setattr(peer_module, "MAX_IDLE", 1)
    pairs: list[Pair] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        depth = int(scope["path"][1:])
        if depth:
            outcome, _client = await pairs[depth % 2].ask("GET", f"/{depth - 1}")
            assert outcome == Taken()
        await reply()(scope, receive, send)

    async def test() -> None:
        async with Pair(app) as one, Pair(app) as two:
            pairs.extend((one, two))
            answers = await asyncio.gather(*(pairs[n % 2].ask("GET", "/6") for n in range(20)))
            assert [outcome for outcome, _ in answers] == [Taken()] * 20
            assert max(one.client.idle, two.client.idle) <= 1

    run(test())


def test_one_connection_for_requests_in_a_row(run: Run) -> None:
    """Requests in a row share a connection; requests at once have one each, of which the idle ones are capped."""

    async def test() -> None:
        async with Pair(echo) as pair:
            for _ in range(5):
                await pair.ask()
            assert len(pair.server.channels) == 1
            await asyncio.gather(*(pair.ask() for _ in range(peer_module.MAX_IDLE + 20)))
            assert pair.client.idle == peer_module.MAX_IDLE
            assert pair.client.busy == 0
            await until(lambda: len(pair.server.channels) == peer_module.MAX_IDLE)

    run(test())


def test_connections_that_are_not_needed_close(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle connections that were not used for a while are closed; one that is in use is kept."""
    monkeypatch.setattr("supervisor.relay.client.TRIM_SECONDS", 0.02)

    async def test() -> None:
        async with Pair(echo) as pair:
            await asyncio.gather(*(pair.ask() for _ in range(10)))
            assert pair.client.idle == 10
            await until(lambda: not pair.client.idle)
            await until(lambda: not pair.server.channels)

    run(test())


def test_connections_that_are_needed_stay(run: Run) -> None:
    """Of the idle connections those stay that were in use since the last look, and no more."""

    async def test() -> None:
        async with Pair(echo) as pair:
            await asyncio.gather(*(pair.ask() for _ in range(10)))
            pair.client._trim()
            assert pair.client.idle == 10
            for _ in range(3):
                await asyncio.gather(pair.ask(), pair.ask())
                pair.client._trim()
                assert pair.client.idle == 2
            await until(lambda: len(pair.server.channels) == 2)
            made = set(pair.server.channels)
            await asyncio.gather(pair.ask(), pair.ask())
            assert pair.server.channels == made

    run(test())


def test_body_is_dropped_when_it_is_taken(run: Run) -> None:
    """What the owner has taken is not held at the acceptor for the rest of the request."""
    admits, runs = asyncio.Event(), asyncio.Event()

    async def admit(request: Open) -> Ack:
        await admits.wait()
        return Ack.OK

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await runs.wait()
        await reply()(scope, receive, send)

    async def test() -> None:
        async with Pair(app, admit=admit) as pair:
            client = Client(b"x" * 1000)
            body = BodyReplay(client.receive)
            order = Order(OWNER, "placed")
            relay = asyncio.ensure_future(pair.client.relay(order, scope_of("POST"), body, client.send))
            await until(lambda: pair.admitted)
            assert "kept=1000" in repr(body)
            admits.set()
            await until(lambda: "kept=0" in repr(body))
            runs.set()
            assert await relay == Taken()

    run(test())
