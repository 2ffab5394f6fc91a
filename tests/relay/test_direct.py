"""Small replies that go past the acceptor's server: the same bytes and the same end as by its own `send`."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from relay.conftest import Run
from relay.pair import OWNER, Pair, reply
from relay.test_wire import request, serving, talk
from uvicorn.protocols.http import httptools_impl

from supervisor.relay.body import BodyReplay
from supervisor.relay.direct import Direct
from supervisor.relay.frames import Whole
from supervisor.relay.lines import lines_of
from supervisor.relay.outcomes import Order, Outcome, Taken
from supervisor.worker.closing import Closing

Headers = list[tuple[bytes, bytes]]
DEFAULTS: Headers = [(b"date", b"today"), (b"server", b"uvicorn")]


class Connection:
    """A client's connection that takes everything, and its flow control."""

    write_paused = False

    def __init__(self) -> None:
        self.written = b""
        self.ended = 0
        self.responses = 0

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.ended += 1

    def responded(self) -> None:
        self.responses += 1

    def cycle(self, *, keep_alive: bool = True, kind: Any = httptools_impl.RequestResponseCycle) -> Any:
        return kind(
            scope={"type": "http", "method": "GET", "http_version": "1.1", "headers": []},
            transport=self,
            flow=self,
            logger=logging.getLogger(),
            access_logger=logging.getLogger(),
            access_log=False,
            default_headers=DEFAULTS,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=keep_alive,
            on_response=self.responded,
        )

    @property
    def seen(self) -> tuple[bytes, int, int]:
        return self.written, self.ended, self.responses


def by_send(status: int, headers: Headers, body: bytes, *, keep_alive: bool) -> tuple[bytes, int, int] | None:
    """What the server's own `send` makes of a reply; None where it refuses it."""
    connection = Connection()

    async def both() -> None:
        send = connection.cycle(keep_alive=keep_alive).send
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    try:
        both().send(None)
    except StopIteration:
        return connection.seen
    except RuntimeError:
        return None
    raise AssertionError("send waits")


names = st.sampled_from([b"content-type", b"Set-Cookie", b"x-\xe9", b"connection", b"transfer-encoding", b"a b", b"a:"])
values = st.one_of(
    st.sampled_from([b"close", b"chunked", b"", b"\xff", b"a\tb", b"a\r\nb: c", b"a\nb: c", b"a\x00"]),
    st.binary(max_size=8),
)
lengths = st.sampled_from([b"content-length", b"Content-Length"])


@given(
    st.lists(st.tuples(st.one_of(names, st.binary(min_size=1, max_size=5)), values), max_size=4),
    st.lists(st.tuples(lengths, st.sampled_from([b"0", b"2", b"02", b"3"])), max_size=2),
    st.sampled_from([b"", b"hi"]),
    st.sampled_from([200, 204, 304, 404, 599]),
    st.booleans(),
)
def test_the_same_as_by_send(headers: Headers, length: Headers, body: bytes, status: int, keep_alive: bool) -> None:
    """Whatever headers an app sends: lines are made of them only where they end in what `send` would have written."""
    headers = headers + length
    lines = lines_of(headers, len(body))
    if lines is None:
        return
    connection = Connection()
    way = Direct()
    cycle = connection.cycle(keep_alive=keep_alive)
    assert way.cycle_of(cycle.send) is cycle
    way.write(cycle, Whole(status, lines + b"\r\n" + body))
    assert connection.seen == by_send(status, headers, body, keep_alive=keep_alive)
    assert cycle is not None
    assert cycle.response_complete


def test_a_reply_to_head_is_the_servers() -> None:
    """The app sends a body all the same, and the client must not get it."""
    cycle = Connection().cycle()
    cycle.scope["method"] = "HEAD"
    assert Direct().cycle_of(cycle.send) is None


def test_plain_headers_have_lines() -> None:
    """What nearly every app sends is plain."""
    headers = [(b"content-length", b"2"), (b"Content-Type", b"text/plain"), (b"set-cookie", b"a=1; path=/")]
    assert lines_of(headers, 2) == b"content-length: 2\r\ncontent-type: text/plain\r\nset-cookie: a=1; path=/\r\n"


class AnotherCase(httptools_impl.RequestResponseCycle):
    """Of a uvicorn that writes names with capitals."""

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [(b"X-More", b"1"), *message["headers"]]}
        await super().send(message)


class AnotherState(httptools_impl.RequestResponseCycle):
    """Of a uvicorn that keeps something that this release does not know of."""

    async def send(self, message: Any) -> None:
        await super().send(message)
        self.more = True


@pytest.mark.parametrize("kind", [AnotherCase, AnotherState])
def test_another_uvicorn(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    """A uvicorn whose `send` does something else gets ASGI messages; so does a class of the user's own."""
    assert Direct().cycle_of(Connection().cycle(kind=kind).send) is None
    monkeypatch.setattr(httptools_impl, "RequestResponseCycle", kind)
    assert Direct().cycle_of(Connection().cycle(kind=kind).send) is None


def test_one_after_the_other(run: Run) -> None:
    """Many requests on one connection, past the server: the outcome has the status, and each has its own reply."""
    outcomes: list[Outcome] = []

    async def test() -> None:
        async with Pair(reply(404, b"no", [(b"content-length", b"2")])) as pair:

            async def front(scope: Any, receive: Any, send: Any) -> None:
                outcomes.append(await pair.client.relay(Order(OWNER), scope, BodyReplay(receive), send, send))

            async with serving(front) as port:
                one = b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"
                answer = await talk(port, one * 4 + request("GET /x"))
                assert answer.count(b"HTTP/1.1 404 Not Found\r\n") == answer.count(b"\r\n\r\nno") == 5
                assert answer.count(b"connection: close") == 1

    run(test())
    assert outcomes == [Taken(status=404)] * 5


def test_a_reply_under_way_when_closing_begins(run: Run) -> None:
    """Replies whose heads have not left when a worker begins to close say so; their clients open other connections."""
    running, go = asyncio.Event(), asyncio.Event()
    cycles: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        cycles.append(getattr(send, "__self__", None))
        running.set()
        await go.wait()
        await reply(200, b"ok", [(b"content-length", b"2")])(scope, receive, send)

    async def test() -> None:
        closing = Closing(app)
        async with serving(closing, interface="asgi3") as port:
            answer = asyncio.ensure_future(talk(port, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"))
            await running.wait()
            closing.begin([SimpleNamespace(cycle=cycles[0])])
            go.set()
            assert b"connection: close\r\n" in await answer
            assert b"connection: close\r\n" in await talk(port, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")

    run(test())
