"""Sending a request to the worker that owns its session, or that shall own it, and what its answer means."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, cast
from uuid import uuid4

import msgspec

from server_adapters.adapter import STATUS_OF, ReplyKind
from server_adapters.heads import ResponseHead
from shmclaims import OwnRow, WorkerRing
from supervisor.relay.client import RelayClient
from supervisor.relay.outcomes import (
    Draining,
    Gone,
    Late,
    NotOwner,
    Order,
    Outcome,
    Overloaded,
    OwnerLost,
    Refused,
    Taken,
    Unreachable,
)
from supervisor.routing import flags
from supervisor.routing.listening import empty_body, note_whether_left
from supervisor.routing.placement import SILENT_SECONDS, Placement
from supervisor.routing.replies import Refusal, Replies, describe_gone
from supervisor.routing.request import RELAYED_TO, Request, Send

MOST_TIMELY = 2  # so often a start is sent on condition that it is not late: everybody may be

TAKEN = (Taken, OwnerLost)
"""Outcomes of a request that another worker has begun to run."""


class Moved(msgspec.Struct, frozen=True):
    """The worker did not take the request. `owner` has the session as far as it knows; None: it does not know.

    `declined`: it could have, and said no; not for ever, if it was because others had more room.
    """

    owner: int | None
    declined: bool = False


class Forwarder:
    """Relays requests of one worker. Returns None where the reply was streamed, Moved where the request must go on,
    and raises Refusal where it can go nowhere.
    """

    def __init__(
        self,
        client: RelayClient | None,
        placement: Placement,
        ring: WorkerRing,
        row: OwnRow,
        *,
        replies: Replies | None = None,
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self.new_id = new_id
        self._replies = replies
        self._client = client
        self._placement = placement
        self._ring = ring
        self._row = row

    def connect(self, client: RelayClient) -> None:
        """This worker gets siblings: requests can be relayed from now on."""
        self._client = client

    def choose(self, avoid: frozenset[int], *, stopping: bool) -> int:
        """The incarnation that gets a new session."""
        if self._client is None:
            return self._placement.me
        target = self._placement.choose(self._candidates(), avoid)
        if target is not None:
            return target
        if stopping or self._placement.me in avoid:
            raise Refusal("overloaded", "no worker takes new sessions now: the server is stopping or restarting")
        # Nobody is announced as ready yet, and still a request has come in here: this worker accepts.
        return self._placement.me

    @property
    def is_ahead(self) -> bool:
        """Whether another worker has more room for a start that has been placed here."""
        return self._placement.is_ahead(self._candidates())

    def _candidates(self) -> list[tuple[int, int, int]]:
        """The ready workers. Whoever asks is alive, also when its next heartbeat is late."""
        me, since = self._placement.me, time.monotonic() - SILENT_SECONDS
        found = self._ring.candidates(beaten_since=since)
        if all(one[0] != me for one in found):
            found += [one for one in self._ring.candidates() if one[0] == me]
        return found

    @property
    def others_take_sessions(self) -> bool:
        """Whether another worker is ready for new sessions."""
        me = self._placement.me
        return self._client is not None and any(one[0] != me for one in self._ring.candidates())

    async def place(
        self, target: int, session: str | None, request: Request, *, mint: bool, final: bool
    ) -> Moved | None:
        """Have `target` claim a new session and run the request; `final`: even if others have more room by now."""
        bits = flags.pack(request.reading, minted=mint, final=final)
        order = Order(owner=target, mode="placed", session=session, flags=bits)
        under_way = self._placement.sent(target)
        reply = request.send

        async def first(message: dict[str, Any]) -> None:
            under_way.answered()
            await reply(message)

        try:
            return await self._send(order, request, first)
        finally:
            under_way.answered()

    def ask(self, owner: int, session: str, request: Request) -> Awaitable[Outcome]:
        """Have the session's owner run a plain request (`Reading.plain`); `settle` is next, unless it is COMPLETE."""
        assert self._client is not None
        self._row.relay()
        order = Order(owner, "owned", session, flags.pack(request.reading))
        request.scope[RELAYED_TO] = owner  # before the reply, at whose end the connection may follow it
        return self._client.relay(order, request.scope, request.body, request.send)

    async def settle(self, owner: int, session: str, request: Request, outcome: Outcome) -> Moved | None:
        """What it means that `ask` had another outcome."""
        moved = await self._settle(Order(owner, "owned", session), request, outcome, None)
        if moved is not None:
            del request.scope[RELAYED_TO]
        return moved

    async def relay(self, owner: int, session: str, request: Request) -> Moved | None:
        """Have the session's owner run the request."""
        order = Order(owner, "owned", session, flags.pack(request.reading))
        request.scope[RELAYED_TO] = owner
        moved = await self._send(order, request, request.send)
        if moved is not None:
            del request.scope[RELAYED_TO]
        return moved

    async def _send(self, order: Order, request: Request, send: Send) -> Moved | None:
        assert self._client is not None
        self._row.relay()
        begun = None
        if request.reading.last_words:
            begun = Begun(send)
            send = begun.send
        if request.head.websocket:
            outcome = await self._client.relay_websocket(order, request.scope, request.body, send)
        elif request.reading.starts:
            outcome = await self._relay_start(self._client, order, request, send)
        else:
            outcome = await self._client.relay(order, request.scope, request.body, send)
        return await self._settle(order, request, outcome, begun)

    async def _settle(self, order: Order, request: Request, outcome: Outcome, begun: Begun | None) -> Moved | None:
        placed = order.mode == "placed"
        if type(outcome) not in TAKEN:
            self._row.add("relayed_out", -1)  # a try, such as of a start whose worker has just filled up
        match outcome:
            case Taken():
                if request.line is not None:
                    request.line.served(order.owner, order.session)
                return None
            case NotOwner(incarnation):
                return Moved(incarnation)
            case Draining() | Late():
                return Moved(None, declined=True)
            case Gone():
                if placed:
                    return Moved(None)
                raise Refusal("session_gone", describe_gone(self._ring, order.owner), owner=order.owner)
            case OwnerLost(started):
                if started:
                    if request.line is not None:
                        request.line.served(order.owner, order.session)
                    # The reply has begun: returning without its end breaks the client's connection off.
                    if begun is not None and begun.head is not None and self._replies is not None:
                        lost = Refusal("session_gone", describe_gone(self._ring, order.owner), owner=order.owner)
                        await self._replies.end_reply(lost, request, order.session, begun.head)
                    return None
                raise Refusal("session_gone", describe_gone(self._ring, order.owner), owner=order.owner)
            case Refused(kind, facts):
                raise Refusal(reply_kind(kind), str(facts.get("detail", "")), owner=order.owner)
            case Overloaded():
                raise Refusal("overloaded", "this worker has no descriptor left for a relay", owner=order.owner)
            case Unreachable(reason):
                if placed:
                    return Moved(None)
                raise Refusal("owner_unreachable", reason, owner=order.owner)

    async def _relay_start(self, client: RelayClient, order: Order, request: Request, send: Send) -> Outcome:
        """Relay a start; as often as it comes late, look whether its client is still there, and send it again."""
        for _ in range(MOST_TIMELY):
            if request.left:
                break
            timely = msgspec.structs.replace(order, flags=flags.stamped(order.flags, time.monotonic()))
            outcome = await client.relay(timely, request.scope, request.body, send)
            if type(outcome) is not Late:
                return outcome
            await note_whether_left(request)
        if request.left:
            failing = msgspec.structs.replace(order, flags=order.flags | flags.LEFT)
            return await client.relay(failing, request.scope, empty_body(), send)
        return await client.relay(order, request.scope, request.body, send)


class Begun:
    """Remembers the head of a reply that passes."""

    __slots__ = ("_send", "head")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.head: ResponseHead | None = None

    async def send(self, message: dict[str, Any]) -> None:
        """The relay's `send`."""
        if message["type"] == "http.response.start":
            self.head = ResponseHead(message["status"], message.get("headers", ()))
        await self._send(message)


def reply_kind(name: str) -> ReplyKind:
    """The reply kind that a sibling named; what this release does not know is a conflict: nothing has run."""
    return cast(ReplyKind, name) if name in STATUS_OF else "session_conflict"
