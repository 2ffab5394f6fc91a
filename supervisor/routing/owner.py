"""The owner's side of a relay: whether it takes a request, said before anything runs; then the run."""

from __future__ import annotations

import time
from typing import Any

from server_adapters.adapter import Reading
from shmclaims import AlreadyClaimed, OwnRow
from supervisor.relay.frames import Ack, Open
from supervisor.routing import flags
from supervisor.routing.claims import Claims
from supervisor.routing.forwarding import Forwarder
from supervisor.routing.plain_visit import PlainVisit
from supervisor.routing.replies import Refusal, Replies
from supervisor.routing.request import Receive, Request, Send, request_head
from supervisor.routing.router import CLOSED, Router
from supervisor.routing.sessions import Owned
from supervisor.routing.taking import Taker

LATE_SECONDS = 0.05
"""A start that has been on its way for so long is sent back, to see whether its client is still there: one that has
left may have started the session elsewhere meanwhile, and run now it would undo what its client has done since.
"""


class Owner:
    """Admits relayed requests and runs them. An admitted one holds its session until it runs or is abandoned."""

    def __init__(
        self, router: Router, claims: Claims, taker: Taker, replies: Replies, forwarder: Forwarder, row: OwnRow
    ) -> None:
        self._router = router
        self._forwarder = forwarder
        self._claims = claims
        self._taker = taker
        self._replies = replies
        self._row = row
        self._admitted: dict[int, tuple[Owned, Reading]] = {}

    def holds(self, order: Open) -> bool:
        """Whether nothing is to be decided about the request: its session is here, and it starts none. `run` is next,
        with no await between.
        """
        session = order.session
        return (
            session is not None
            and order.mode == "owned"
            and not order.flags & flags.STARTS
            and self._claims.book.get(session) is not None
        )

    async def admit(self, order: Open) -> Ack:
        """Say whether this worker takes the request; it may claim the session for that."""
        if flags.age_seconds(order.flags, time.monotonic()) > LATE_SECONDS:
            return Ack.LATE
        placed = order.mode == "placed"
        if placed and (self._router.stopping or (not order.flags & flags.FINAL and self._forwarder.is_ahead)):
            return Ack.DRAINING
        session = order.session
        if session is None:
            return Ack.OK
        reading = flags.unpack(order.flags, session)
        own = None if placed else self._claims.book.get(session)
        if own is None:
            if reading.stateless:
                return Ack.OK  # the claim it was sent after has ended, and such a request makes none
            try:
                own = await self._taker.take(session, start=reading.starts, replace_gone=reading.replaces_gone)
            except AlreadyClaimed as taken:
                return Ack.not_owner(taken.claim.incarnation)
            except Refusal as refusal:
                return (
                    Ack.GONE
                    if refusal.kind == "session_gone"
                    else Ack.refused(refusal.kind, {"detail": refusal.detail})
                )
        if self._router.refuses_start(reading, own):
            return Ack.refused("session_closed", {"detail": CLOSED})
        own.in_flight += 1
        self._admitted[id(order)] = own, reading
        return Ack.OK

    async def run(self, order: Open, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Run the app for a request that is held here, or was admitted."""
        row = self._row
        row.enter_relayed()
        head = request_head(scope)
        session = order.session
        admitted = self._admitted.pop(id(order), None)
        own: Owned | None
        if admitted is not None:
            own, reading = admitted
            admitted[0].in_flight -= 1  # the run counts it in the same step
        else:
            held = session if order.mode == "owned" else None
            own = None if held is None else self._claims.book.get(held)
            reading = flags.unpack(order.flags, session)
        router = self._router
        try:
            if not order.flags & flags.NOT_PLAIN and not head.websocket:
                visit = PlainVisit(router.around, head, reading, own, scope, send)
                try:
                    await router.app(scope, receive, visit.send)
                finally:
                    visit.finish()
            elif head.websocket:
                await router.websockets.run(Request(head, reading, scope, receive, send), own)
            else:
                left = bool(order.flags & flags.LEFT)
                await router.run(Request(head, reading, scope, receive, send, left=left), own)
        except Refusal as refusal:  # of a request alone
            await self._replies.send(refusal, head, reading, send, session)
        finally:
            row.leave()

    def abandon(self, order: Open) -> None:
        """The acceptor went away between the answer and the run: let go of the session."""
        own, _ = self._admitted.pop(id(order), (None, None))
        if own is not None and self._claims.book.leave(own, time.monotonic()):
            self._claims.give_back(own)
