"""Ids that a reply's body gives out: claimed before the piece that completes them leaves, and nothing else is held."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from server_adapters.adapter import Life, OwnReply, Plain, Reading, ReplyReading, json_reply
from server_adapters.finders import BodyJson, EventStream, Finder
from shmclaims import AlreadyClaimed, Claim, ClaimState, TableFull
from supervisor.routing.replies import Replies
from supervisor.routing.request import Request, request_head
from supervisor.routing.sessions import Book, Owned
from supervisor.routing.solo import SoloClaims
from supervisor.routing.visit import Visit

Message = dict[str, Any]


class Adapter(Plain):
    """Finds an id with the finder that it is given."""

    name = "test"
    life = Life(window_seconds=5.0)

    def __init__(self, finder: Finder) -> None:
        self._finder = finder

    def read(self, _head: Any) -> Reading:
        return Reading()

    def reply(self, *_: Any) -> ReplyReading:
        return ReplyReading(finder=self._finder)

    def own_reply(self, kind: Any, _head: Any, _reading: Any, facts: Any) -> OwnReply:
        return json_reply(kind, facts)


class Nothing:
    """A worker's counters and the other workers' rows: there are none."""

    def set(self, name: str, value: int) -> None:
        """Write one."""

    def row(self, _incarnation: int) -> None:
        """None of them is known."""


class Claims(SoloClaims):
    """Claims that can be told to wait or to fail."""

    def __init__(self) -> None:
        super().__init__(Nothing(), Adapter.life)  # type: ignore[arg-type]
        self.free = asyncio.Event()
        self.free.set()
        self.asked = asyncio.Event()
        self.error: Exception | None = None

    async def take(self, session: str, *, start: bool = False, replace_gone: bool = False) -> Owned:
        self.asked.set()
        await self.free.wait()
        if self.error is not None:
            raise self.error
        return await super().take(session, start=start, replace_gone=replace_gone)


class Run:
    """One request's run: what its app sends, and what has left of it."""

    def __init__(self, finder: Finder, **reading: Any) -> None:
        self.sent: list[Message] = []
        self.claims = Claims()
        scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
        adapter = Adapter(finder)
        replies = Replies(adapter, Nothing(), server="test")  # type: ignore[arg-type]
        request = Request(request_head(scope), Reading(**reading), scope, _never, self._send)
        self.visit = Visit(adapter, self.claims, replies, request, None)

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def book(self) -> Book:
        return self.claims.book

    @property
    def left(self) -> list[Any]:
        """What has left: the status, then the pieces."""
        return [message.get("status", message.get("body")) for message in self.sent]

    async def head(self, status: int = 200) -> None:
        await self.visit.send({"type": "http.response.start", "status": status, "headers": []})

    async def piece(self, body: bytes, *, more: bool = True) -> None:
        await self.visit.send({"type": "http.response.body", "body": body, "more_body": more})


async def _never() -> Message:
    raise AssertionError("nobody reads")


def in_json() -> Finder:
    return BodyJson(("sid",))


def in_events() -> Finder:
    return EventStream(lambda _, data: data.decode())


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 10))


def test_a_stream_is_not_held_back() -> None:
    """Head and pieces leave as they come; the one with the id waits for the claim alone."""

    async def test() -> None:
        stream = Run(in_events(), starts=True, lasts=True)
        await stream.head()
        await stream.piece(b": hello\n\n")
        assert stream.left == [200, b": hello\n\n"]
        stream.claims.free.clear()
        last = asyncio.ensure_future(stream.piece(b"data: abc\n\n"))
        await stream.claims.asked.wait()
        assert stream.left == [200, b": hello\n\n"]
        stream.claims.free.set()
        await last
        await stream.piece(b"data: def\n\n")
        assert stream.left == [200, b": hello\n\n", b"data: abc\n\n", b"data: def\n\n"]
        own = stream.book.get("abc")
        assert own is not None
        assert (own.open, own.in_flight, stream.book.unstarted) == (True, 1, 0)
        await stream.piece(b"", more=False)
        stream.visit.finish()
        assert (own.open, own.in_flight, len(stream.book)) == (False, 0, 1)

    run(test)


def test_the_head_of_a_small_reply_waits_for_its_first_piece() -> None:
    """So that a claim that cannot be made takes the reply's place."""

    async def test() -> None:
        small = Run(in_json(), starts=True)
        await small.head()
        assert small.left == []
        await small.piece(b'{"sid":"abc"}', more=False)
        assert small.left == [200, b'{"sid":"abc"}']
        small.visit.finish()
        own = small.book.get("abc")
        assert own is not None
        assert own.open

    run(test)


HELD = AlreadyClaimed(Claim(ClaimState.LIVE, index=1, incarnation=2, user=0, opened_at=0, last_used_at=0, prefix=""))


@pytest.mark.parametrize(("error", "status"), [(HELD, 409), (TableFull("full"), 503)])
def test_an_id_that_cannot_be_claimed_does_not_leave(error: Exception, status: int) -> None:
    """A small reply is replaced; a stream, whose head has left, breaks off before the piece with the id."""

    async def test() -> None:
        small = Run(in_json())
        small.claims.error = error
        await small.head()
        await small.piece(b'{"sid":"abc"}', more=False)
        assert small.left[0] == status
        assert b"abc" not in b"".join(small.left[1:]).replace(b'"session": "abc"', b"")
        stream = Run(in_events())
        stream.claims.error = error
        await stream.head()
        with pytest.raises(ConnectionError):
            await stream.piece(b"data: abc\n\n")
        await stream.piece(b"data: more\n\n")
        assert stream.left == [200]
        for one in (small, stream):
            one.visit.finish()
            assert len(one.book) == 0

    run(test)


def test_an_id_of_another_session_ends_the_one_it_came_under() -> None:
    """The client moves on: the old id ends, the new one is kept."""

    async def test() -> None:
        moved = Run(in_json())
        old = await moved.claims.take("old")
        moved.visit = Visit(Adapter(in_json()), moved.claims, moved.visit._replies, _under("old", moved._send), old)
        await moved.head()
        await moved.piece(b'{"sid":"new"}', more=False)
        moved.visit.finish()
        new = moved.book.get("new")
        assert new is not None
        assert (old.ended_at is not None, new.ended_at) == (True, None)

    run(test)


def _under(session: str, send: Any) -> Request:
    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    return Request(request_head(scope), Reading(session, ends=True), scope, _never, send)
