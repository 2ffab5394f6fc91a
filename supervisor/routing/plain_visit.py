"""One request's run through the app, where nothing but its reply's head can matter to a session: nearly every one.

It neither starts nor ends anything, so a `Visit` would watch it for nothing. The head is read as a visit reads it; if
that shows something to do (an id that the app has just given out, a cookie that takes the session's name away, an id
to look for in the body) a visit takes over. Otherwise the messages pass without a step of their own.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import Any

from server_adapters.adapter import Adapter, Reading
from server_adapters.heads import RequestHead, ResponseHead
from supervisor.routing import extension
from supervisor.routing.claims import Claims
from supervisor.routing.extension import SessionExtension
from supervisor.routing.replies import Replies
from supervisor.routing.request import Request, Scope, Send
from supervisor.routing.sessions import Owned
from supervisor.routing.visit import Visit


class Surroundings:
    """What all visits of a worker have in common."""

    __slots__ = ("adapter", "claims", "kept_unread", "replies")

    def __init__(self, adapter: Adapter, claims: Claims, replies: Replies) -> None:
        self.adapter = adapter
        self.claims = claims
        self.replies = replies
        self.kept_unread = not adapter.life.kept_by_reply  # a reply need not name the session for its claim to be kept


class PlainVisit:
    """One plain request (`Reading.plain`) that runs here; counted in as it is made, until `finish`."""

    __slots__ = (
        "_around",
        "_extension",
        "_full",
        "_head",
        "_own",
        "_passes",
        "_reading",
        "_scope",
        "_send",
        "_succeeds",
    )

    def __init__(
        self, around: Surroundings, head: RequestHead, reading: Reading, own: Owned | None, scope: Scope, send: Send
    ) -> None:
        self._around = around
        self._head = head
        self._reading = reading
        self._own = own
        self._scope = scope
        self._send = send
        self._full: Visit | None = None
        self._passes = False  # nothing that comes now matters
        self._succeeds = False  # the session's first reply is a success, once it is complete
        self._extension = offered = SessionExtension(around.claims, own)
        extensions = scope.get("extensions")
        if extensions is None:
            scope["extensions"] = {extension.NAME: offered}
        else:
            extensions[extension.NAME] = offered
        if own is not None:
            own.in_flight += 1
            own.visits += 1

    @property
    def session(self) -> str | None:
        """The session that it ran under, or the one that its reply gave out."""
        if self._full is not None:
            return self._full.session
        return None if self._own is None else self._own.session

    def send(self, message: dict[str, Any]) -> Awaitable[None]:
        """The app's `send`; a plain function, since a coroutine of its own would cost more than all it does."""
        if self._passes:
            return self._send(message)
        if self._full is not None:
            return self._full.send(message)
        kind = message["type"]
        if kind != "http.response.start":
            if self._succeeds and kind == "http.response.body" and not message.get("more_body", False):
                return self._end(message)
            return self._send(message)
        around, own, scope = self._around, self._own, self._scope
        status = message["status"]
        unrouted = status == 404 and "router" in scope and "endpoint" not in scope
        reply = ResponseHead(status, message.get("headers", ()), unrouted)
        seen = around.adapter.reply(self._head, self._reading, None if own is None else own.session, reply)
        issued = seen.issued
        known = issued is None or (own is not None and issued == own.session)
        if known and seen.finder is None and (own is None or not seen.expired):
            self._passes = True
            if own is not None:
                if issued is not None or around.kept_unread:
                    own.kept = True
                if not (own.succeeded or seen.nothing) and 200 <= status < 300:
                    self._passes, self._succeeds = False, True
            return self._send(message if seen.headers is None else {**message, "headers": list(seen.headers)})
        request = Request(self._head, self._reading, scope, _nobody, self._send)
        self._full = Visit(around.adapter, around.claims, around.replies, request, own, taken_over=self._extension)
        return self._full.send(message)

    async def _end(self, message: dict[str, Any]) -> None:
        await self._send(message)
        assert self._own is not None
        self._own.succeeded = True

    def finish(self) -> None:
        """The app's callable has returned or raised: let go of the session."""
        if self._full is not None:
            self._full.finish()
            return
        own = self._own
        if own is None:
            self._extension.finish(None, 0.0)
            return
        claims, now = self._around.claims, time.monotonic()
        changed = self._extension.finish(own, now)
        if claims.book.leave(own, now):
            claims.give_back(own)
        else:
            claims.touch(own, now)
        if changed:
            claims.publish()


async def _nobody() -> dict[str, Any]:
    """A visit reads nothing of its request."""
    return {"type": "http.disconnect"}
