"""One WebSocket's run through the app on the worker that owns its session: what it does to the claim.

The app's messages pass through `WebSocketVisit.send` before they leave. In the head of its answer (the accept, or the
denial) the adapter may see an id that the app has just given out: it is claimed before the head leaves, as with a
request's reply. So is an id in the app's first frames, where the adapter looks for one. Where that fails, the WebSocket
is refused instead and the app's client has gone, as far as it can see.
"""

from __future__ import annotations

import time
from typing import Any

from server_adapters.adapter import Adapter
from server_adapters.heads import ResponseHead
from supervisor.routing.claims import Claims
from supervisor.routing.extension import SessionExtension
from supervisor.routing.issuing import claim_file, claim_issued
from supervisor.routing.replies import Refusal, Replies
from supervisor.routing.request import Request
from supervisor.routing.sessions import Owned

SWITCHING_PROTOCOLS = 101

HEADS = frozenset({"websocket.accept", "websocket.http.response.start"})


class Withheld(OSError):
    """What the app's `send` raises once its WebSocket was refused under it: ASGI's word for a client that has gone."""


class WebSocketVisit:
    """One WebSocket that runs here, counted as one request in flight for as long as its app runs.

    own       the session it runs under; None: it has none
    accepted  the app has accepted it
    withheld  it was refused under its app
    """

    def __init__(self, adapter: Adapter, claims: Claims, replies: Replies, request: Request, own: Owned | None) -> None:
        self.extension = SessionExtension(claims, own)
        self.accepted = False
        self._adapter = adapter
        self._claims = claims
        self._replies = replies
        self._request = request
        self._own = own
        self._issued: Owned | None = None
        self._answered = False
        self._finder = adapter.frames(request.head, request.reading)
        self._looks = self._finder is not None or adapter.names_files
        self._files: set[str] = set()
        self.withheld = False
        self._closes = 0
        self._held: list[Owned] = []  # all that it counts in
        if own is not None:
            claims.book.enter(own)
            self._held.append(own)
            self._closes = own.closes
            own.kept = own.kept or request.reading.session is not None
            if request.reading.lasts:
                claims.book.start(own, succeeded=True, now=time.monotonic())

    @property
    def session(self) -> str | None:
        """The session that it runs under, or the one that it gave out."""
        own = self._own if self._issued is None else self._issued
        return None if own is None else own.session

    async def send(self, message: dict[str, Any]) -> None:
        """The app's `send`: each message to its client passes here before it leaves."""
        if self.withheld:
            raise Withheld
        if self._answered:
            if self._looks and message["type"] == "websocket.send":
                await self._look(message)
            await self._request.send(message)
            return
        kind = message["type"]
        if kind in HEADS:
            message = await self._read_head(message)
        await self._request.send(message)
        self._answered = True
        self.accepted = kind == "websocket.accept"
        self._start(succeeded=self.accepted)

    async def _read_head(self, message: dict[str, Any]) -> dict[str, Any]:
        request = self._request
        reply = ResponseHead(message.get("status", SWITCHING_PROTOCOLS), message.get("headers", ()))
        named = None if self._own is None else self._own.session
        seen = self._adapter.reply(request.head, request.reading, named, reply)
        if seen.issued is not None and seen.issued != named:
            await self.issue(seen.issued)
        elif self._own is not None:
            if seen.expired:
                self._unname()
            elif seen.issued is not None:
                self._own.kept = True
        return message if seen.headers is None else {**message, "headers": list(seen.headers)}

    async def _look(self, message: dict[str, Any]) -> None:
        """Look into a frame: for the session's id, and for files that are in this worker's memory."""
        adapter, finder = self._adapter, self._finder
        data = message.get("bytes")
        frame = (message.get("text") or "").encode() if data is None else data
        if finder is not None:
            issued = finder.feed(frame, last=False)
            if finder.over:
                self._finder = None
                self._looks = adapter.names_files
            if issued is not None:
                await self.issue(issued)
        if adapter.names_files:
            for name in adapter.files(frame):
                if name not in self._files:
                    self._files.add(name)
                    self._held.append(await claim_file(self._claims, name))

    async def issue(self, session: str) -> None:
        """The app gives out an id: claim it before the message with it leaves. One that it has already is no news.

        Raises:
            Withheld: it cannot be had; the client has been told so.

        """
        if session == self.session:
            return
        try:
            self._issued = await claim_issued(self._claims, self._request.reading, session)
        except Refusal as refusal:
            self.withheld = True
            await self._replies.send_websocket(refusal, self._request, session, accepted=self.accepted)
            raise Withheld from refusal
        self._held.append(self._issued)
        self._unname()
        if self._answered:
            self._start(succeeded=self.accepted)

    def _start(self, *, succeeded: bool) -> None:
        """The handshake is answered, or never will be: a start has succeeded or failed with it."""
        own = self._own if self._issued is None else self._issued
        if own is not None and self._request.reading.starts:
            # A close that came meanwhile was meant for it.
            closed = own is self._own and own.closes != self._closes
            self._claims.book.start(own, succeeded=succeeded and not closed, now=time.monotonic())
            self._claims.publish()

    def _unname(self) -> None:
        """The client's name for the session is taken away, or replaced: it ends."""
        if self._own is not None and self._request.reading.session is not None:
            self._claims.book.end(self._own, time.monotonic())

    def finish(self) -> None:
        """The app's callable has returned or raised: settle what that means for the session, then let go of it."""
        now = time.monotonic()
        claims, reading = self._claims, self._request.reading
        own = self._own if self._issued is None else self._issued
        if own is not None:
            if not self._answered:
                self._start(succeeded=False)
            if reading.ends or (reading.lasts and own.in_flight == 1):
                claims.book.end(own, now)
        self.extension.finish(own, now)
        for held in self._held:
            if claims.book.leave(held, now):
                claims.give_back(held)
            else:
                claims.touch(held, now)
        claims.publish()
