"""The acceptor's side: carry a request to its owner and the reply back, or say why not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from supervisor.relay.attempts import Attempts
from supervisor.relay.body import BodyReplay
from supervisor.relay.codec import encode
from supervisor.relay.exchange import BROKEN_OFF, COMPLETE, Send
from supervisor.relay.frames import INLINE_BODY, Head, Open, ProtocolError, Scope
from supervisor.relay.once import drop_repetitions
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
from supervisor.relay.peer import Peer
from supervisor.relay.websocket import acceptor as websocket

__all__ = [
    "BodyReplay",
    "Draining",
    "Gone",
    "Late",
    "NotOwner",
    "Order",
    "Outcome",
    "Overloaded",
    "OwnerLost",
    "Refused",
    "RelayClient",
    "Taken",
    "Unreachable",
]

# How long an owner that cannot be reached is looked at before it counts as unreachable.
REACH_SECONDS = 2.0
# How often the connections that were not needed meanwhile are closed.
TRIM_SECONDS = 30.0

DEATHS = (Gone, OwnerLost)

# Extensions that need nothing but messages passed on as they are.
EXTENSIONS = ("http.response.trailers", "http.response.early_hint")


class RelayClient:
    """Connections to all the other workers of a server, and the requests that are on them.

    Args:
        path_of: the private socket of an incarnation.
        is_live: whether an incarnation's row is live.
        pid_of: its process id, or None where it is not known.
        uid: the user that every worker runs as.
        reach_seconds: how long to try an owner that lives but cannot be reached.

    """

    def __init__(
        self,
        *,
        path_of: Callable[[int], str],
        is_live: Callable[[int], bool],
        pid_of: Callable[[int], int | None],
        uid: int,
        reach_seconds: float = REACH_SECONDS,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._path_of = path_of
        self._is_live = is_live
        self._pid_of = pid_of
        self._uid = uid
        self._reach_seconds = reach_seconds
        self._peers: dict[int, Peer] = {}
        self._trimmer: asyncio.TimerHandle | None = None
        drop_repetitions()

    def __repr__(self) -> str:
        return f"<RelayClient peers={len(self._peers)} idle={self.idle} busy={self.busy}>"

    @property
    def idle(self) -> int:
        """Connections kept without a request."""
        return sum(peer.idle for peer in self._peers.values())

    @property
    def busy(self) -> int:
        """Connections with a request."""
        return sum(peer.busy for peer in self._peers.values())

    async def relay(self, order: Order, scope: Mapping[str, Any], body: BodyReplay, send: Send) -> Outcome:
        """Carry one request to its owner and the reply to `send`.

        Unless the outcome is Taken or OwnerLost, nothing has run, nothing has been sent to the client and `body` is
        still whole: the request can go elsewhere. An exception of `send` passes through; the owner's app then gets
        http.disconnect.
        """
        headers = scope["headers"] if order.headers is None else order.headers
        holds = not body.complete and _waits_for_continue(headers)
        inline = None if holds else body.ready(INLINE_BODY)
        if body.left:
            return BROKEN_OFF
        try:
            opened = encode(_open(order, scope, headers, inline, holds))
        except ProtocolError as error:
            return Unreachable(str(error))
        peer = self._peers.get(order.owner) or self._meet(order.owner)
        link = peer.take()
        if link is not None:
            link.transport.write(opened)
            try:
                await link.arrival()
            except BaseException:
                link.abort()
                raise
            frames = link.frames
            if len(frames) == 1:
                head = frames[0]
                # Nearly every reply. No TAKEN before it: all of the request was in Open, and the connection is clean.
                if type(head) is Head and head.body is not None and not head.trailers:
                    frames.clear()
                    peer.give(link)
                    await send({"type": "http.response.start", "status": head.status, "headers": head.headers})
                    await send({"type": "http.response.body", "body": head.body, "more_body": False})
                    return COMPLETE
        outcome = await Attempts(
            peer,
            opened,
            body,
            send,
            whole=inline is not None,
            placed=order.mode == "placed",
            holds=holds,
            reach_seconds=self._reach_seconds,
        ).run(link)
        if type(outcome) in DEATHS and peer.dead():
            self._forget(order.owner)
        return outcome

    async def relay_websocket(self, order: Order, scope: Mapping[str, Any], body: BodyReplay, send: Send) -> Outcome:
        """Carry one WebSocket to its owner; as `relay`, `body` being the WebSocket's receive.

        What `send` raises is the app's affair in part: an OSError says that the client has gone.
        """
        try:
            opened = encode(websocket.open_of(order, scope))
        except ProtocolError as error:
            return Unreachable(str(error))
        peer = self._peers.get(order.owner) or self._meet(order.owner)
        placed, reach_seconds = order.mode == "placed", self._reach_seconds
        outcome = await websocket.WebSocketAttempts(
            peer, opened, body, send, placed=placed, reach_seconds=reach_seconds
        ).run(None)
        if type(outcome) in DEATHS and peer.dead():
            self._forget(order.owner)
        return outcome

    async def close(self) -> None:
        """Close the connections that have no request; the others close at their requests' ends."""
        if self._trimmer is not None:
            self._trimmer.cancel()
            self._trimmer = None
        for incarnation in list(self._peers):
            self._forget(incarnation)

    def _meet(self, owner: int) -> Peer:
        peer = Peer(
            self._loop,
            self._path_of(owner),
            self._uid,
            is_live=lambda: self._is_live(owner),
            pid=self._pid_of(owner),
        )
        self._peers[owner] = peer
        if self._trimmer is None:
            self._trimmer = self._loop.call_later(TRIM_SECONDS, self._trim)
        return peer

    def _forget(self, owner: int) -> None:
        peer = self._peers.pop(owner, None)
        if peer is not None:
            peer.close()

    def _trim(self) -> None:
        for owner, peer in list(self._peers.items()):
            peer.trim()
            if not peer.busy and peer.dead():
                self._forget(owner)
        self._trimmer = self._loop.call_later(TRIM_SECONDS, self._trim) if self._peers else None


def _waits_for_continue(headers: Any) -> bool:
    for name, value in headers:  # noqa: SIM110 (half the time of any())
        if name == b"expect" and value.lower() == b"100-continue":
            return True
    return False


_of_scope = itemgetter(*Scope.__struct_fields__)
_OPTIONAL = {"method": "", "scheme": "http", "raw_path": None, "root_path": "", "client": None, "server": None}


def _open(order: Order, scope: Mapping[str, Any], headers: Any, inline: bytes | None, holds: bool) -> Open:
    try:
        values = _of_scope(scope)
    except KeyError:
        values = _of_scope({**_OPTIONAL, **scope})
    extensions = scope.get("extensions")
    if extensions is not None:
        extensions = [name for name in EXTENSIONS if name in extensions]
    return Open(
        order.owner,
        order.mode,
        order.session,
        order.flags,
        Scope(*values),
        headers if type(headers) is list else list(headers),
        inline or b"",
        inline is None,
        holds,
        extensions,
    )
