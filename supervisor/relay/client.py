"""The acceptor's side: carry a request to its owner and the reply back, or say why not."""

from __future__ import annotations

import asyncio
import errno
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any

from supervisor.relay import unix
from supervisor.relay.body import BodyReplay
from supervisor.relay.exchange import BROKEN_OFF, Exchange, Send
from supervisor.relay.frames import INLINE_BODY, Open, ProtocolError, encode
from supervisor.relay.outcomes import (
    Draining,
    Gone,
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

__all__ = [
    "BodyReplay",
    "Draining",
    "Gone",
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

logger = logging.getLogger("supervisor.relay")

# How long an owner that cannot be reached is looked at before it counts as unreachable.
REACH_SECONDS = 2.0
FIRST_PAUSE_SECONDS = 0.002
LONGEST_PAUSE_SECONDS = 0.1
# A connection that was not used for so long (to twice as long) is closed.
IDLE_SECONDS = 30.0

EXHAUSTED = (errno.EMFILE, errno.ENFILE)

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
        holds = False
        for name, value in headers:
            if name == b"expect" and value.lower() == b"100-continue":
                holds = not body.complete
        if not holds:
            body.ready()
        if body.left:
            return BROKEN_OFF
        inline = body.inline(INLINE_BODY)
        try:
            opened = encode(_open(order, scope, headers, inline, holds))
        except ProtocolError as error:
            return Unreachable(str(error))
        peer = self._peers.get(order.owner) or self._meet(order.owner)
        # The owner says when it takes the request, or nobody waits for that and it may have begun to run unsaid.
        unsaid = inline is not None and order.mode == "owned"
        deadline = 0.0
        pause = FIRST_PAUSE_SECONDS
        while True:
            exchange = None
            link = peer.take()
            if link is None:
                try:
                    link = await peer.connect()
                except unix.ForeignPeer as error:
                    logger.error("relay: %s", error)
                    return Unreachable(str(error))
                except OSError as error:
                    if error.errno in EXHAUSTED:
                        return Overloaded()
                    failure = f"cannot connect: {error.strerror or error}"
            if link is not None:
                exchange = Exchange(link, body, send, inline is not None, holds)
                try:
                    outcome = await exchange.run(opened)
                finally:
                    peer.give(link, clean=exchange.ended and exchange.uploaded)
                if outcome is not None:
                    return outcome
                if exchange.taken:
                    return await self._lost(peer, order.owner)
                failure = "the connection ended before the owner answered"
            if peer.dead():
                self._forget(order.owner)
                return OwnerLost(started=False) if exchange is not None and unsaid else Gone()
            now = self._loop.time()
            deadline = deadline or now + self._reach_seconds
            if now >= deadline:
                return Unreachable(f"{failure}, for {self._reach_seconds:g} s, though it lives")
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def close(self) -> None:
        """Close the connections that have no request; the others close at their requests' ends."""
        if self._trimmer is not None:
            self._trimmer.cancel()
            self._trimmer = None
        for incarnation in list(self._peers):
            self._forget(incarnation)

    async def _lost(self, peer: Peer, owner: int) -> Outcome:
        """The owner had taken the request, and its connection is gone; at an exit that is seen before the exit is."""
        deadline = self._loop.time() + self._reach_seconds
        pause = FIRST_PAUSE_SECONDS
        while not peer.dead():
            if self._loop.time() >= deadline:
                logger.error("relay: worker %d took a request and closed its connection, but it lives", owner)
                return BROKEN_OFF
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        self._forget(owner)
        return OwnerLost(started=False)

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
            self._trimmer = self._loop.call_later(IDLE_SECONDS, self._trim)
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
        self._trimmer = self._loop.call_later(IDLE_SECONDS, self._trim) if self._peers else None


def _open(order: Order, scope: Mapping[str, Any], headers: Any, inline: bytes | None, holds: bool) -> Open:
    asgi = scope["asgi"]
    offered = scope.get("extensions")
    return Open(
        order.owner,
        order.mode,
        order.session,
        order.flags,
        scope["type"],
        scope["http_version"],
        scope["method"],
        scope.get("scheme", "http"),
        scope["path"],
        scope.get("raw_path"),
        scope["query_string"],
        scope.get("root_path", ""),
        headers if type(headers) is list else list(headers),
        scope.get("client"),
        scope.get("server"),
        (asgi["version"], asgi.get("spec_version", "2.0")),
        b"" if inline is None else inline,
        inline is None,
        holds,
        None if offered is None else [name for name in EXTENSIONS if name in offered],
    )
