"""A plain visit does what a visit does, for every kind of reply that a plain request can have."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from routing.test_issued_in_body import Claims, Nothing, in_json

from server_adapters.adapter import Life, OwnReply, Plain, Reading, ReplyReading, json_reply
from supervisor.routing import extension
from supervisor.routing.plain_visit import PlainVisit, Surroundings
from supervisor.routing.replies import Replies
from supervisor.routing.request import Request, request_head
from supervisor.routing.sessions import Owned
from supervisor.routing.visit import Visit

Message = dict[str, Any]
Sending = Callable[[Message], Awaitable[None]]

REPLIES: dict[str, Callable[[], ReplyReading]] = {
    "says nothing": ReplyReading,
    "names the session": lambda: ReplyReading(issued="mine"),
    "gives out another": lambda: ReplyReading(issued="another"),
    "takes the name away": lambda: ReplyReading(expired=True),
    "other headers": lambda: ReplyReading(headers=[(b"x", b"y")]),
    "no handler": lambda: ReplyReading(nothing=True),
    "an id in the body": lambda: ReplyReading(finder=in_json()),
}
ENDS = {
    "whole": [(b'{"sid": ', True), (b'"new"}', False)],
    "cut": [(b'{"sid": ', True)],
    "no reply": [],
}
SAYS = {"nothing": None, "holds": "hold", "releases": "release", "closes": "close"}


class Adapter(Plain):
    """Reads each reply's head as it is told."""

    name = "test"

    def __init__(self, reply: Callable[[], ReplyReading], *, kept_by_reply: bool) -> None:
        self.life = Life(window_seconds=5.0, kept_by_reply=kept_by_reply)
        self._reply = reply

    def read(self, _head: Any) -> Reading:
        return Reading()

    def reply(self, *_: Any) -> ReplyReading:
        return self._reply()

    def own_reply(self, kind: Any, _head: Any, _reading: Any, facts: Any) -> OwnReply:
        return json_reply(kind, facts)


class Shown(Claims):
    """Remembers what it has published."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: dict[str, int] = {}
        self._row = self  # type: ignore[assignment]

    def set(self, name: str, value: int) -> None:
        """A counter of the worker's row."""
        self.shown[name] = value


async def run(adapter: Adapter, *, plain: bool, owned: bool, status: int, end: str, says: str | None) -> Any:
    """One request's run: what has left, its session, and all that the book knows afterwards."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("nobody reads")

    claims = Shown()
    own = await claims.take("mine") if owned else None
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "extensions": {"other": {}}}
    replies = Replies(adapter, Nothing(), server="test")  # type: ignore[arg-type]
    head, reading = request_head(scope), Reading("mine" if owned else None, vouched=owned)
    visit: Visit | PlainVisit
    if plain:
        visit = PlainVisit(Surroundings(adapter, claims, replies), head, reading, own, scope, send)
    else:
        visit = Visit(adapter, claims, replies, Request(head, reading, scope, receive, send), own)
        scope["extensions"][extension.NAME] = visit.extension  # type: ignore[index]
    during = None if own is None else (own.in_flight, own.visits)
    ended: list[str] = []
    offered = scope["extensions"][extension.NAME]  # type: ignore[index]
    offered.on_end(lambda: ended.append("ended"))
    try:
        if says is not None:
            getattr(offered, says)()
        if ENDS[end]:
            await visit.send({"type": "http.response.start", "status": status, "headers": []})
        for body, more in ENDS[end]:
            await visit.send({"type": "http.response.body", "body": body, "more_body": more})
    finally:
        visit.finish()
    assert claims.book.open_sessions == claims.shown.get("sessions", 0)
    return sent, visit.session, during, ended, offered.session, [facts(one) for one in (own, *claims.book) if one]


def facts(own: Owned) -> dict[str, Any]:
    """What is known of a session, but for times and callbacks."""
    known = {name: getattr(own, name) for name in Owned.__slots__ if name not in ("touched_at", "on_end")}
    return {
        name: value is not None if name.endswith("_at") or name == "deadline" else value
        for name, value in known.items()
    }


@pytest.mark.parametrize("kept_by_reply", [False, True], ids=["kept", "kept by a reply"])
@pytest.mark.parametrize("owned", [False, True], ids=["no session", "a session"])
@pytest.mark.parametrize("reply", REPLIES)
def test_as_a_visit(reply: str, *, owned: bool, kept_by_reply: bool) -> None:
    """Messages, session, and the book: the same for each status, end and word of the app."""

    async def compare() -> None:
        for status, end, says in itertools.product((200, 404), ENDS, SAYS.values()):
            adapter = Adapter(REPLIES[reply], kept_by_reply=kept_by_reply)
            way: dict[str, Any] = {"owned": owned, "status": status, "end": end, "says": says}
            assert await run(adapter, plain=True, **way) == await run(adapter, plain=False, **way), way

    asyncio.run(compare())


def test_what_the_app_sends_passes_without_a_step() -> None:
    """Once the head has shown nothing, the server's own awaitables are handed out."""

    class Word:
        def __await__(self) -> Any:
            yield from ()

    word = Word()
    adapter = Adapter(ReplyReading, kept_by_reply=False)
    replies = Replies(adapter, Nothing(), server="test")  # type: ignore[arg-type]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    around = Surroundings(adapter, Claims(), replies)
    visit = PlainVisit(around, request_head(scope), Reading(), None, scope, lambda _: word)
    assert visit.send({"type": "http.response.start", "status": 200, "headers": []}) is word
    assert visit.send({"type": "http.response.body", "body": b"x"}) is word
    visit.finish()
