"""The acceptor's side of a WebSocket: what the client sends goes up, what the owner's app sends comes down.

The client's server speaks the protocol itself (frames, masks, pings, compression); what is carried are the messages of
ASGI, so each server implementation answers its client as it would for an app of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from supervisor.relay.attempts import Attempts
from supervisor.relay.body import BodyReplay, Receive
from supervisor.relay.codec import encode, last_word, text_word
from supervisor.relay.exchange import BROKEN_OFF, COMPLETE, Send, refusal
from supervisor.relay.frames import Ack, Frame, Last, Message, Open, Piece, Scope, Signal, Text
from supervisor.relay.link import Link
from supervisor.relay.once import OwnersAppFailed, logged_by_owner
from supervisor.relay.outcomes import Order, Outcome, OwnerLost
from supervisor.relay.peer import Peer
from supervisor.relay.websocket.pieces import join

logger = logging.getLogger("gym_supervise.relay")

DENIAL = "websocket.http.response"

# What a client sees whose session has died under it, and what uvicorn closes with when it stops.
SERVICE_RESTART = 1012
LOST: dict[str, Any] = {"type": "websocket.close", "code": SERVICE_RESTART, "reason": "session_gone"}


def open_of(order: Order, scope: Mapping[str, Any]) -> Open:
    """The frame that begins a WebSocket."""
    fields = {"method": "GET", "raw_path": None, "root_path": "", "client": None, "server": None, **scope}
    headers = scope["headers"] if order.headers is None else order.headers
    extensions = scope.get("extensions")
    return Open(
        order.owner,
        order.mode,
        order.session,
        order.flags,
        Scope(*(fields[name] for name in Scope.__struct_fields__)),
        list(headers),
        more_body=True,
        extensions=None if extensions is None else [name for name in (DENIAL,) if name in extensions],
        subprotocols=list(scope.get("subprotocols", ())),
    )


class WebSocketAttempts(Attempts):
    """All that is tried for one WebSocket."""

    def __init__(
        self, peer: Peer, opened: bytes, body: BodyReplay, send: Send, *, placed: bool, reach_seconds: float
    ) -> None:
        super().__init__(peer, opened, body, send, whole=False, placed=placed, holds=False, reach_seconds=reach_seconds)

    def begin(self, link: Link) -> Conversation:
        """What comes after Open."""
        return Conversation(link, self._body, self._send)


class Conversation:
    """One WebSocket on one connection; `run` it once.

    taken     the owner has said that it takes it
    uploaded  nothing but Open was sent: the connection is good for another request. After a WebSocket it never is,
              since what the client sends may cross the end of the app
    """

    def __init__(self, link: Link, receive: Receive, send: Send) -> None:
        self._link = link
        self._receive = receive
        self._send = send
        self._pieces: list[bytes] = []
        self._accepted = False
        self._denial: dict[str, Any] | None = None  # its head, until its body is whole
        self._answered = False  # the handshake is over: accepted or closed
        self._left = False  # the client has gone, or the server has closed it
        self._watch: asyncio.Task[None] | None = None
        self.taken = False
        self.uploaded = False

    async def run(self) -> Outcome | None:
        """The outcome; None: the connection was lost before the client's handshake was answered."""
        link = self._link
        try:
            while True:
                frames = link.frames
                if frames:
                    link.frames = []
                    for frame in frames:
                        outcome = await self._pass(frame)
                        if outcome is not None:
                            return outcome
                elif link.lost:
                    return await self._lost()
                else:
                    await link.arrival()
        finally:
            if self._watch is not None:
                self._watch.cancel()

    async def _pass(self, frame: Frame) -> Outcome | None:
        if type(frame) is Piece:
            self._pieces.append(frame.data)
        elif type(frame) is Text:
            await self._tell({"type": "websocket.send", "text": join(self._pieces, frame.data).decode()})
        elif type(frame) is Last:
            data = join(self._pieces, frame.data)
            if self._denial is None:
                await self._tell({"type": "websocket.send", "bytes": data})
            else:  # at once: uvicorn's `websockets` sends what it has of a body in the next turn of the loop
                await self._tell(self._denial)
                await self._tell({"type": "websocket.http.response.body", "body": data, "more_body": False})
        elif type(frame) is Message:
            await self._pass_message(frame.content)
        elif frame is Signal.TAKEN:
            self.taken = True
            self._watch = asyncio.get_running_loop().create_task(self._carry())
        elif type(frame) is Ack:
            self.uploaded = True
            return refusal(frame)
        elif frame is Signal.ENDED:
            logged_by_owner()  # that the handshake was not answered, if it was not
            return COMPLETE
        elif frame is Signal.FAILED:
            logged_by_owner()
            raise OwnersAppFailed  # to the server it is its app's own, which some take differently from a return
        return None

    async def _pass_message(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "websocket.http.response.start":
            self._denial = message
            return
        self._answered = True
        self._accepted = kind == "websocket.accept"
        await self._tell(message)

    async def _tell(self, message: dict[str, Any]) -> None:
        """Pass a message to the client; once that has gone, what the app still sends goes nowhere."""
        if self._left:
            return
        try:
            await self._send(message)
        except OSError:  # ASGI's word for a client that has gone; the app hears of it by the server's disconnect
            self._left = True

    async def _lost(self) -> Outcome | None:
        """The owner closes a WebSocket with its own word where it ends in order; this one has died."""
        if self._link.fault is not None or self._left:
            return BROKEN_OFF
        if not self._answered:
            return None
        if self._accepted:
            await self._tell(LOST)
        return OwnerLost(started=True)

    async def _carry(self) -> None:
        """What the client sends, until it has gone; the first message is the handshake itself, which Open has told."""
        link = self._link
        try:
            while not link.lost:
                message = await self._receive()
                kind = message["type"]
                if kind == "websocket.receive":
                    data = message.get("bytes")
                    if data is not None:
                        await link.write_message(data, last_word)
                    else:
                        await link.write_message(message["text"].encode(), text_word)
                elif kind == "websocket.disconnect":
                    link.transport.write(encode(Message(message)))
                    return
        except Exception:
            logger.exception("relay: what a WebSocket's client has sent could not be passed on")
            link.abort()
