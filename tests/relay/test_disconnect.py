"""A client that goes away is a message to the owner's app, whenever it goes, and never a cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from relay.conftest import Run
from relay.pair import OWNER, Client, Pair, echo, until

from supervisor.relay.codec import TAKEN
from supervisor.relay.frames import Ack
from supervisor.relay.outcomes import Taken

START = {"type": "http.response.start", "status": 200, "headers": []}


class Witness:
    """An app that does `steps` and then reads until the disconnect; `end` is what ended it."""

    def __init__(self, *steps: str) -> None:
        self._steps = steps
        self.at = ""
        self.read: list[dict[str, Any]] = []
        self.end: str | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            for step in self._steps:
                if step == "read":
                    self.read.append(await receive())
                elif step == "start":
                    await send(START)
                else:
                    await send({"type": "http.response.body", "body": step.encode(), "more_body": True})
            self.at = "waits"
            while True:
                self.read.append(await receive())
                if self.read[-1]["type"] == "http.disconnect":
                    break
            await send({"type": "http.response.body", "body": b"unheard", "more_body": True})
            await asyncio.sleep(0)
            self.end = "returned"
        except BaseException as error:
            self.end = repr(error)
            raise


CASES: dict[str, tuple[tuple[str, ...], tuple[bytes, ...], bool]] = {
    "before the first byte": (("read",), (b"x",), False),
    "before the first byte, nothing read": ((), (b"x",), False),
    "after the head": (("read", "start"), (b"x",), False),
    "while the reply streams": (("read", "start", "event"), (b"x",), False),
    "while the body streams": (("read",), (b"x", b"y" * 100_000), True),
    "while both stream": (("read", "start", "event"), (b"x",), True),
}


@pytest.mark.parametrize(("steps", "chunks", "more"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("mode", ["owned", "placed"])
def test_client_leaves(run: Run, steps: tuple[str, ...], chunks: tuple[bytes, ...], more: bool, mode: str) -> None:
    """The owner's app gets http.disconnect, never the end of a body that has none, and ends as it likes."""
    app = Witness(*steps)

    async def test() -> None:
        async with Pair(app) as pair:
            client = Client(*chunks, more=more)
            relay = asyncio.ensure_future(pair.relay(client, mode=mode))
            await until(lambda: app.at)
            await until(lambda: len(client.messages) == len([step for step in steps if step != "read"]))
            client.leave()
            assert await relay == Taken(complete=False)
            await until(lambda: app.end)
            assert app.end == "returned"
            assert app.read[-1] == {"type": "http.disconnect"}
            if more:
                assert all(message.get("more_body", True) for message in app.read)
            assert not client.complete
            assert pair.client.busy == 0

    run(test())


def test_client_left_before(run: Run) -> None:
    """A client that has left already costs the owner nothing."""

    async def test() -> None:
        async with Pair(echo) as pair:
            client = Client(more=True)
            client.leave()
            assert await pair.relay(client) == Taken(complete=False)
            assert pair.admitted == []

    run(test())


async def fails(message: Any) -> None:
    raise OSError("the server cannot send")


async def never(message: Any) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("how", ["send raises", "cancelled in send", "cancelled before the reply"])
def test_acceptor_ends_it(run: Run, how: str) -> None:
    """Whatever ends the request at the acceptor, the owner's app gets http.disconnect; the connection is dropped."""
    app = Witness("read") if how == "cancelled before the reply" else Witness("read", "start")
    sends: dict[str, Callable[[Any], Awaitable[None]]] = {"send raises": fails, "cancelled in send": never}

    async def test() -> None:
        async with Pair(app) as pair:
            for _ in range(2):
                app.at, app.end = "", None
                client = Client(b"x")
                client.send = sends.get(how, client.send)  # type: ignore[method-assign, assignment]
                relay = asyncio.ensure_future(pair.relay(client))
                await until(lambda: app.at)
                if how == "send raises":
                    with pytest.raises(OSError, match="cannot send"):
                        await relay
                else:
                    relay.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await relay
                await until(lambda: app.end)
                assert app.end == "returned"
                await until(lambda: not pair.server.channels)
                assert pair.client.busy == pair.client.idle == 0

    run(test())


def test_cancelled_on_a_pooled_connection(run: Run) -> None:
    """A request that is cancelled while it waits on a pooled connection does not leave its reply to the next one."""
    go = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/wait":
            await go.wait()
        await send(START)
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    async def test() -> None:
        async with Pair(app) as pair:
            await pair.ask("GET", "/first")
            assert pair.client.idle == 1
            waiting = asyncio.ensure_future(pair.ask("GET", "/wait"))
            await until(lambda: len(pair.ran) == 2)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            go.set()
            assert (await pair.ask("GET", "/next"))[1].body == b"/next"
            await until(lambda: (pair.client.busy, pair.client.idle) == (0, 1))

    run(test())


def test_cancelled_while_frames_come(run: Run) -> None:
    """Frames, or the end of the connection, that come in the turn in which their request is cancelled do no harm."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        assert (await receive())["type"] == "http.disconnect"

    async def test() -> None:
        async with Pair(app) as pair:
            for end in (False, True):
                pair.ran.clear()
                waiting = asyncio.ensure_future(pair.ask())
                await until(lambda: pair.ran)
                (link,) = pair.client._peers[OWNER]._links
                waiting.cancel()
                if end:
                    link.connection_lost(None)
                    link.transport.abort()  # what it tells
                else:
                    link.data_received(TAKEN)
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                await until(lambda: not pair.server.channels)

    run(test())


def test_disconnect_after_the_reply(run: Run) -> None:
    """After its reply an app reads http.disconnect at once, also in a task that waits for it."""
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        watch = asyncio.create_task(receive())
        await asyncio.sleep(0)
        await send(START)
        await send({"type": "http.response.body", "body": b"ok"})
        seen.append(await watch)
        seen.append(await receive())

    async def test() -> None:
        async with Pair(app) as pair:
            assert (await pair.ask())[0] == Taken()
            await until(lambda: len(seen) == 2)
            assert seen == [{"type": "http.disconnect"}] * 2
            assert (await pair.ask())[0] == Taken()

    run(test())


def test_acceptor_leaves_while_the_owner_decides(run: Run) -> None:
    """A request whose client has gone before it ran is abandoned: what its admission has taken can be given back."""
    go = asyncio.Event()

    async def test() -> None:
        async def admit(request: Any) -> Ack:
            await go.wait()
            return Ack.OK

        async with Pair(echo, admit=admit) as pair:
            relay = asyncio.ensure_future(pair.relay(Client(b"x")))
            await until(lambda: pair.admitted)
            relay.cancel()
            with pytest.raises(asyncio.CancelledError):
                await relay
            await until(lambda: not pair.server.channels)
            go.set()
            await until(lambda: pair.abandoned)
            assert pair.abandoned == pair.admitted
            assert pair.ran == []

    run(test())
