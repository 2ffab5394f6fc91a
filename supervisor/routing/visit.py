"""One request's run through the app on the worker that owns its session: what its reply does to the claim.

The app's messages pass through `Visit.send`. At the reply's head the adapter looks for an id that the app has just
given out; it is claimed before the head leaves, since from then on a client can name it. Where that fails the app's
reply is withheld and the reason sent in its place. An id in the reply's body is looked for in each piece, which leaves
as soon as it has been seen: only the one that completes the id waits for the claim.
"""

from __future__ import annotations

import time
from typing import Any

from server_adapters.adapter import Adapter
from server_adapters.finders import Finder
from server_adapters.heads import ResponseHead
from supervisor.routing.claims import Claims
from supervisor.routing.extension import SessionExtension
from supervisor.routing.issuing import claim_issued
from supervisor.routing.listening import Listener
from supervisor.routing.replies import Refusal, Replies
from supervisor.routing.request import Request
from supervisor.routing.sessions import Owned

LONGEST_READ_REPLY = 4 * 1024 * 1024  # a reply's body is read for an end up to here; a longer one ends nothing


class Visit:
    """One request that runs here. `own` is the session it runs under, None when it has none.

    `listener` is asked whether the client is still there when a start's reply is complete; None: not asked.
    `taken_over` is the extension of a plain visit that this one takes over, which has counted the request in.
    """

    __slots__ = (
        "_adapter",
        "_body",
        "_claims",
        "_closes",
        "_complete",
        "_finder",
        "_head",
        "_held",
        "_issued",
        "_listener",
        "_made",
        "_nothing",
        "_own",
        "_reading",
        "_replies",
        "_reply_head",
        "_request",
        "_send",
        "_session",
        "_status",
        "_unnamed",
        "_unsent",
        "_withheld",
        "extension",
    )

    def __init__(
        self,
        adapter: Adapter,
        claims: Claims,
        replies: Replies,
        request: Request,
        own: Owned | None,
        listener: Listener | None = None,
        *,
        taken_over: SessionExtension | None = None,
    ) -> None:
        self.extension = SessionExtension(claims, own) if taken_over is None else taken_over
        self._adapter = adapter
        self._claims = claims
        self._replies = replies
        self._request = request
        self._head = request.head
        self._reading = reading = request.reading
        self._own = own
        self._session = None if own is None else own.session
        self._made = own is not None and taken_over is None and claims.book.enter(own)
        if own is not None and reading.lasts:
            claims.book.start(own, succeeded=True, now=time.monotonic())
        self._closes = 0 if own is None else own.closes
        self._issued: Owned | None = None
        self._send = request.send
        self._listener = listener
        self._status = 0
        self._unsent = 0  # bytes of the body that the head has announced and that have not been sent
        self._complete = False
        self._nothing = False
        self._unnamed = False
        self._withheld = False
        self._reply_head: ResponseHead | None = None
        self._finder: Finder | None = None
        self._held: dict[str, Any] | None = None  # the reply's head, until the first piece of its body
        self._body: bytearray | None = bytearray() if reading.wants_reply_body else None

    @property
    def session(self) -> str | None:
        """The session that it ran under, or the one that its reply gave out."""
        return self._session if self._issued is None else self._issued.session

    async def send(self, message: dict[str, Any]) -> None:
        """The app's `send`."""
        kind = message["type"]
        if kind == "http.response.start":
            message = await self._read_head(message)
            if self._withheld:
                return
            if self._finder is not None and self._finder.holds_head:
                self._held = message
                return
        elif kind == "http.response.body":
            if self._withheld:
                return
            body = message.get("body", b"")
            self._unsent -= len(body)
            if self._finder is not None and not await self._look(self._finder, message):
                return
            if self._body is not None:
                self._collect(body)
            if not message.get("more_body", False):
                # Asked before it is sent: to the server a complete reply and a client that left are one thing.
                left = self._listener is not None and self._listener.client_left()
                await self._send(message)
                self._complete = not left and self._unsent <= 0
                return
        await self._send(message)

    async def _read_head(self, message: dict[str, Any]) -> dict[str, Any]:
        status = self._status = message["status"]
        reply = ResponseHead(status, message.get("headers", ()), unrouted=status == 404 and self._request.unrouted)
        if self._body is not None:
            self._reply_head = reply
        if self._listener is not None:
            self._unsent = content_length(reply)
        seen = self._adapter.reply(self._head, self._reading, self._session, reply)
        self._nothing = seen.nothing
        self._finder = seen.finder
        own = self._own
        if seen.issued is not None and seen.issued != self._session:
            try:
                self._issued = await claim_issued(self._claims, self._reading, seen.issued)
            except Refusal as refusal:
                await self._withhold(refusal, seen.issued)
                return message
            self._unname()
        elif own is not None:
            if seen.expired:
                self._unname()
            elif seen.issued is not None or not (self._reading.mints or self._adapter.life.kept_by_reply):
                own.kept = True
        return message if seen.headers is None else {**message, "headers": list(seen.headers)}

    async def _look(self, finder: Finder, message: dict[str, Any]) -> bool:
        """Look for an id in a piece of the body, and claim it; False: the piece must not be sent."""
        issued = finder.feed(message.get("body", b""), last=not message.get("more_body", False))
        if finder.over:
            self._finder = None
        if issued is not None and issued != self._session:
            try:
                self._issued = await claim_issued(self._claims, self._reading, issued)
            except Refusal as refusal:
                if self._held is None:
                    self._withheld = True
                    self._replies.note(refusal, self._head, issued)
                    raise ConnectionError(f"{refusal.kind}: {refusal.detail}") from refusal
                await self._withhold(refusal, issued)
                return False
        held, self._held = self._held, None
        if held is not None:
            await self._send(held)
        return True

    async def _withhold(self, refusal: Refusal, issued: str) -> None:
        """Send the refusal in place of the app's reply."""
        self._withheld = True
        await self._replies.send(refusal, self._head, self._reading, self._send, issued)

    def _unname(self) -> None:
        """The reply takes the client's name for the session away: it ends. One that it never knew is not even kept."""
        self._unnamed = True
        if self._own is not None and self._reading.session is not None:
            self._claims.book.end(self._own, time.monotonic())

    def _collect(self, body: bytes) -> None:
        assert self._body is not None
        if len(self._body) + len(body) > LONGEST_READ_REPLY:
            self._body = None
        else:
            self._body += body

    def finish(self) -> None:
        """The app's callable has returned or raised: settle what that means for the session, then let go of it."""
        now = time.monotonic()
        own = self._own if self._issued is None else self._issued
        if own is not None:
            self._settle(own, now)
            if self._own is not None and self._issued is not None and not self._unnamed:
                self._settle(self._own, now)  # an id in the body is one beside the request's own
        self.extension.finish(own, now)
        claims = self._claims
        for held in (self._own, self._issued):
            if held is None:
                continue
            if claims.book.leave(held, now):
                claims.give_back(held)
            else:
                claims.touch(held, now)
        claims.publish()

    def _settle(self, own: Owned, now: float) -> None:
        book, reading = self._claims.book, self._reading
        succeeded = self._complete and 200 <= self._status < 300 and (self._issued is own or not self._unnamed)
        if self._nothing:
            return
        if reading.lasts:
            if own.in_flight == 1:
                book.end(own, now)
        elif reading.starts:
            created_nothing = (
                book.life.rolls_back
                and reading.typed
                and 400 <= self._status < 500
                and self._made
                and own.in_flight == 1
                and not own.succeeded
            )
            if created_nothing:
                book.forget(own)
                return
            # A close that came while the start ran was meant for it: the session is over, whichever reply came last.
            closed = self._own is own and own.closes != self._closes
            book.start(own, succeeded=succeeded and not closed, now=now)
        elif (own is not self._issued or self._unnamed) and self._ends():
            if reading.typed:
                book.close(own, now)
            else:
                book.end(own, now)
        own.succeeded = own.succeeded or succeeded

    def _ends(self) -> bool:
        if self._reading.ends:
            return True
        if self._body is None or self._reply_head is None or not self._complete:
            return False
        return self._adapter.read_reply_body(self._head, self._reading, self._reply_head, bytes(self._body))


def content_length(reply: ResponseHead) -> int:
    """How many bytes of a body the head announces; 0 where it does not say."""
    for name, value in reply.headers:
        if name.lower() == b"content-length" and value.isdigit():
            return int(value)
    return 0
