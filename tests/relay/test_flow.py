"""Large and endless bodies: back-pressure in both directions, events as they come, replies that end before uploads."""

from __future__ import annotations

import asyncio
import hashlib
import tracemalloc
from typing import Any

import pytest
from relay.conftest import Run
from relay.pair import OWNER, Client, Pair, read_all, reply, settled, until

from supervisor.relay.channel import Channel
from supervisor.relay.outcomes import Taken

KIB = 1024
MIB = 1024 * KIB
START = {"type": "http.response.start", "status": 200, "headers": []}


def piece(data: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


def test_slow_app_stops_the_uploader(run: Run) -> None:
    """An app that does not read stops the client within a few MiB; when it reads, all arrives, in order."""
    go = asyncio.Event()
    sums = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await go.wait()
        sums.append(hashlib.sha256(await read_all(receive)).digest())
        await reply()(scope, receive, send)

    async def test() -> None:
        chunks = [bytes([n % 256]) * (64 * KIB) for n in range(512)]  # 32 MiB
        client = Client(*chunks)
        async with Pair(app) as pair:
            relay = asyncio.ensure_future(pair.relay(client))
            await until(lambda: client.received)
            assert await settled(lambda: client.received) < 4 * MIB // (64 * KIB)
            go.set()
            assert await relay == Taken()
            assert sums == [hashlib.sha256(b"".join(chunks)).digest()]
            assert pair.client.idle == 1

    run(test())


@pytest.mark.parametrize("size", [1 * KIB, 64 * KIB, 32 * MIB])
def test_stalled_client_stops_the_owner(run: Run, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """A client that does not read stops the owner's app within a few MiB, whatever it sends at once; then all comes."""
    total = 32 * MIB
    written = 0

    class Counting(Channel):
        def write(self, data: bytes | memoryview) -> None:
            nonlocal written
            written += len(data)
            super().write(data)

        def write_two(self, word: bytes, data: memoryview) -> None:
            nonlocal written
            written += len(data)
            super().write_two(word, data)

    monkeypatch.setattr("supervisor.relay.server.Channel", Counting)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        for _ in range(total // size):
            await send(piece(b"x" * size))
        await send(piece(b"", more=False))

    async def test() -> None:
        async with Pair(app) as pair:
            client = Client()
            client.gate.clear()
            relay = asyncio.ensure_future(pair.relay(client))
            await until(lambda: written)
            assert 0 < await settled(lambda: written) < 4 * MIB
            client.gate.set()
            assert await relay == Taken()
            assert sum(map(len, client.pieces)) == total
            assert pair.client.idle == 1

    run(test())


@pytest.mark.parametrize("direction", ["up", "down"])
def test_memory_is_bounded(run: Run, direction: str) -> None:
    """64 MiB pass in either direction without being held anywhere."""
    chunk = b"x" * (64 * KIB)
    count = 64 * MIB // len(chunk)
    size = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal size
        more = True
        while more:
            message = await receive()
            more = message["more_body"]
            size += len(message["body"])
        await send(START)
        for _ in range(count if direction == "down" else 0):
            await send(piece(chunk))
        await send(piece(b"", more=False))

    async def test() -> None:
        nonlocal size
        client = Client(*([chunk] * count if direction == "up" else [b""]))

        async def send(message: Any) -> None:
            nonlocal size
            size += len(message.get("body", b""))

        client.send = send  # type: ignore[method-assign]
        async with Pair(app) as pair:
            tracemalloc.start()
            try:
                assert await pair.relay(client) == Taken()
                assert tracemalloc.get_traced_memory()[1] < 8 * MIB
            finally:
                tracemalloc.stop()
        assert size == 64 * MIB

    run(test())


def test_upload_while_the_reply_streams(run: Run) -> None:
    """Each piece of the reply answers a piece of the body that the client sends only after the piece before."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        more = True
        while more:
            message = await receive()
            more = message["more_body"]
            await send(piece(b"<" + message["body"] + b">", more=more))

    async def test() -> None:
        async with Pair(app) as pair:
            client = Client(b"0", more=True)
            relay = asyncio.ensure_future(pair.relay(client))
            for n in range(5):
                await until(lambda n=n: client.body.endswith(b"<%d>" % n))  # type: ignore[misc]
                client.upload(b"%d" % (n + 1), more=n < 4)
            assert await relay == Taken()
            assert client.body == b"<0><1><2><3><4><5>"
            assert pair.client.idle == 1

    run(test())


def test_reply_ends_before_the_upload_is_read(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """A reply that does not wait for the body reaches the client, and the next request is not mixed with the rest."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "POST":
            await receive()
            await reply(413, b"too large")(scope, receive, send)
            assert (await receive())["type"] == "http.disconnect"
        else:
            await reply()(scope, receive, send)

    async def test() -> None:
        async with Pair(app) as pair:
            client = Client(*[b"x" * 64 * KIB] * 512)
            assert await pair.relay(client) == Taken()
            assert (client.status, client.body) == (413, b"too large")
            assert client.received < 512
            outcome, client = await pair.ask("GET")
            assert (outcome, client.status) == (Taken(), 200)
            client = Client(b"x", more=True)  # one that will never end its body
            assert await pair.relay(client) == Taken()
            assert client.status == 413
            assert (await pair.ask("GET"))[0] == Taken()
            assert caplog.text == ""

    run(test())


def test_reply_without_reading_an_upload_that_has_come(run: Run) -> None:
    """A body that has gone up whole and was not read does not stop the connection for the next request."""
    go = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "POST":
            await go.wait()
        await reply()(scope, receive, send)

    async def test() -> None:
        async with Pair(app) as pair:
            client = Client(b"x" * 70 * KIB, b"y" * 70 * KIB)
            relay = asyncio.ensure_future(pair.relay(client))
            (channel,) = await appears(pair)
            await until(lambda: client.received == 2 and channel._reading_paused)
            go.set()
            assert await relay == Taken()
            assert pair.client.idle == 1
            async with asyncio.timeout(5):
                assert (await pair.ask("GET"))[0] == Taken()
            assert (channel,) == tuple(pair.server.channels)

    run(test())


async def appears(pair: Pair) -> set[Channel]:
    """The owner's connections, once there are some."""
    await until(lambda: pair.server.channels)
    return pair.server.channels


def test_idle_after_a_large_reply(run: Run) -> None:
    """A connection on which a reply came faster than its client took it is heard again when it is idle."""

    async def test() -> None:
        async with Pair(reply(body=b"x" * 400 * KIB)) as pair:
            client = Client()
            client.gate.clear()
            relay = asyncio.ensure_future(pair.relay(client))
            (channel,) = await appears(pair)
            await until(lambda: channel._reply is None and pair.ran)
            (link,) = pair.client._peers[OWNER]._links
            await until(lambda: link.reading_paused)
            client.gate.set()
            assert await relay == Taken()
            assert pair.client.idle == 1
            channel.abort()
            await until(lambda: not pair.client.idle)

    run(test())


def test_reply_before_a_late_body(run: Run) -> None:
    """An app that needs no body replies though the client has not sent one yet."""

    async def test() -> None:
        async with Pair(reply(401)) as pair:
            client = Client(more=True)
            assert await pair.relay(client) == Taken()
            assert (client.status, client.received) == (401, 0)

    run(test())


def test_large_messages(run: Run) -> None:
    """A message of many MiB passes whole in both directions, also as the last of several."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = await read_all(receive)
        await send(START)
        await send(piece(body[:10]))
        await send(piece(body[10 : 3 * MIB]))
        await send(piece(body[3 * MIB :], more=False))

    async def test() -> None:
        data = bytes(range(256)) * (28 * KIB) + b"end"
        async with Pair(app) as pair:
            for chunks in ([data], [data[:5], data[5:]]):
                client = Client(*chunks)
                assert await pair.relay(client) == Taken()
                assert client.body == data
            assert pair.client.idle == 1

    run(test())
