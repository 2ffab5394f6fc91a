"""BodyReplay: one body for several tries, and for running here after all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from relay.conftest import Run
from relay.pair import Client, until

from supervisor.relay.body import BodyReplay, ClientLeft


async def rest(body: BodyReplay) -> list[tuple[bytes, bool]]:
    """The messages of a whole body, as an app reads them."""
    found = []
    while True:
        message = await body()
        found.append((message["body"], message["more_body"]))
        if not found[-1][1]:
            return found


def test_is_a_receive(run: Run) -> None:
    """Untouched, it gives the messages of the receive that it wraps."""

    async def test() -> None:
        client = Client(b"a", b"b")
        body = BodyReplay(client.receive)
        assert await rest(body) == [(b"a", True), (b"b", False)]
        client.leave()
        assert await body() == {"type": "http.disconnect"}
        assert await body() == {"type": "http.disconnect"}

    run(test())


def test_whole_is_replayed_without_a_copy(run: Run) -> None:
    """The whole body is the object that a later try and the app get."""

    async def test() -> None:
        body = BodyReplay(Client(b"a" * 1000, b"b" * 1000).receive)
        whole = await body.whole()
        assert whole == b"a" * 1000 + b"b" * 1000
        assert await body.whole() is whole
        assert body.ready(10_000) is whole
        message = await body()
        assert message["body"] is whole
        assert message["more_body"] is False

    run(test())


def test_ready_takes_what_is_there(run: Run) -> None:
    """A body that is there is read at once and stays for the next try, until it is dropped."""

    async def test() -> None:
        client = Client(b"abc")
        body = BodyReplay(client.receive)
        assert body.ready(3) == b"abc"
        assert body.ready(3) == b"abc"
        assert client.received == 1
        assert body.complete
        assert await body() == {"type": "http.request", "body": b"abc", "more_body": False}
        body = BodyReplay(Client(b"abc").receive)
        assert body.ready(3) == b"abc"
        body.drop()
        assert "kept=0" in repr(body)

    run(test())


def test_ready_leaves_large_bodies(run: Run) -> None:
    """A body above the limit, or one that goes on, is not ready; nothing of it is lost."""

    async def test() -> None:
        body = BodyReplay(Client(b"abcd").receive)
        assert body.ready(3) is None
        assert await rest(body) == [(b"abcd", False)]
        body = BodyReplay(Client(b"ab", b"c").receive)
        assert body.ready(3) is None
        assert await rest(body) == [(b"ab", True), (b"c", False)]

    run(test())


def test_ready_does_not_wait(run: Run) -> None:
    """A body that is late is read later, by the read that was begun: no message is lost and none read twice."""

    async def test() -> None:
        client = Client(more=True)
        body = BodyReplay(client.receive)
        assert body.ready(100) is None
        assert body.ready(100) is None
        read = asyncio.ensure_future(rest(body))
        await asyncio.sleep(0)
        client.upload(b"x", b"y")
        assert await read == [(b"x", True), (b"y", False)]
        assert client.received == 2

    run(test())


def test_ready_begun_and_cancelled(run: Run) -> None:
    """A waiting read that was begun by `ready` can be cancelled, and the next one goes on."""

    async def test() -> None:
        client = Client(more=True)
        body = BodyReplay(client.receive)
        assert body.ready(100) is None
        read = asyncio.ensure_future(body())
        await asyncio.sleep(0)
        read.cancel()
        with pytest.raises(asyncio.CancelledError):
            await read
        client.upload(b"z")
        assert await rest(body) == [(b"z", False)]

    run(test())


def test_errors_of_receive_pass(run: Run) -> None:
    """An exception of the wrapped receive reaches whoever reads, at once or after waiting."""

    async def test() -> None:
        go = asyncio.Event()

        async def receive() -> Any:
            await go.wait()
            raise OSError("broken")

        body = BodyReplay(receive)
        assert body.ready(1) is None
        go.set()
        with pytest.raises(OSError, match="broken"):
            await body()
        with pytest.raises(OSError, match="broken"):
            BodyReplay(receive).ready(1)

    run(test())


def test_client_left(run: Run) -> None:
    """A client that leaves in the middle of its body has no whole body."""

    async def test() -> None:
        client = Client(b"a", more=True)
        body = BodyReplay(client.receive)
        whole = asyncio.ensure_future(body.whole())
        await until(lambda: client.received == 1)
        client.leave()
        with pytest.raises(ClientLeft):
            await whole
        with pytest.raises(ClientLeft):
            await body.whole()
        assert body.left
        client = Client(more=True)
        client.leave()
        body = BodyReplay(client.receive)
        assert body.ready(1) is None
        assert body.left

    run(test())


def test_disconnected(run: Run) -> None:
    """Waiting for the disconnect leaves a body that is kept as it is."""

    async def test() -> None:
        client = Client(b"abc")
        body = BodyReplay(client.receive)
        assert body.ready(3) == b"abc"
        waiting = asyncio.ensure_future(body.disconnected())
        await asyncio.sleep(0)
        client.leave()
        await waiting
        assert await body() == {"type": "http.request", "body": b"abc", "more_body": False}
        assert await body() == {"type": "http.disconnect"}

    run(test())


def test_a_client_that_leaves_behind_its_whole_body_is_seen() -> None:
    """Asked without waiting: before it has left, after, and again."""

    async def test() -> None:
        gone = asyncio.Event()
        messages = [{"type": "http.request", "body": b"all", "more_body": False}]

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        body = BodyReplay(receive)
        assert await body.whole() == b"all"
        assert not body.client_left()
        assert not body.client_left()
        gone.set()
        assert body.client_left()
        assert body.client_left()

    asyncio.run(test())
