"""One request on one connection, at the acceptor: Open up, the rest of the body behind it, the reply down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from supervisor.relay.body import BodyReplay
from supervisor.relay.frames import COPIED, Ack, Frame, Head, Last, Message, Piece, Signal, Verdict
from supervisor.relay.link import Link
from supervisor.relay.once import logged_by_owner
from supervisor.relay.outcomes import Draining, Gone, Late, NotOwner, Outcome, OwnerLost, Refused, Taken

logger = logging.getLogger("gym_supervise.relay")

Send = Callable[[dict[str, Any]], Awaitable[None]]

COMPLETE = Taken()
BROKEN_OFF = Taken(complete=False)


class Exchange:
    """What comes after Open, where it is more than one small reply; `run` it once.

    uploaded  nothing of the body is left to send; at first: the whole body travels in Open
    taken     the owner has said that it takes the request
    """

    __slots__ = (
        "_body",
        "_holds",
        "_left",
        "_link",
        "_send",
        "_started",
        "_trailers",
        "_watch",
        "taken",
        "uploaded",
    )

    def __init__(self, link: Link, body: BodyReplay, send: Send, *, uploaded: bool, holds: bool) -> None:
        self._link = link
        self._body = body
        self._send = send
        self._holds = holds  # the client waits for `100 Continue`: its body is read when the owner's app asks for it
        self._left = False
        self._started = False
        self._trailers = False
        self._watch: asyncio.Task[None] | None = None
        self.uploaded = uploaded
        self.taken = False

    async def run(self) -> Outcome | None:
        """The outcome; None: the connection was lost before the reply began, and the client is still there."""
        link = self._link
        try:
            while True:
                frames = link.frames
                if frames:
                    link.frames = []
                    first = frames[0]
                    if type(first) is Piece and len(frames) == 1:  # an event of a stream
                        await self._send({"type": "http.response.body", "body": first.data, "more_body": True})
                        continue
                    outcome = await self._pass(frames)
                    if outcome is not None:
                        return outcome
                elif link.lost:
                    return self._lost()
                else:
                    await link.arrival()
        finally:
            if self._watch is not None:
                self._watch.cancel()

    async def _pass(self, frames: list[Frame]) -> Outcome | None:
        """Pass on what has come at once; the pieces of a body among it leave as one."""
        pieces: list[bytes] = []
        for frame in frames:
            if type(frame) is Piece:
                pieces.append(frame.data)
                if len(frame.data) > COPIED:  # a copy costs more than a call
                    for data in pieces:
                        await self._send({"type": "http.response.body", "body": data, "more_body": True})
                    pieces.clear()
                continue
            if type(frame) is Last:
                pieces.append(frame.data)
                await self._send({"type": "http.response.body", "body": b"".join(pieces), "more_body": False})
                if not self._trailers:
                    return COMPLETE
                pieces.clear()
                continue
            if pieces:
                await self._send({"type": "http.response.body", "body": b"".join(pieces), "more_body": True})
                pieces.clear()
            outcome = await self._pass_one(frame)
            if outcome is not None:
                return outcome
        if pieces:
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        return None

    async def _pass_one(self, frame: Frame) -> Outcome | None:
        if type(frame) is Head:
            self._started = True
            self._trailers = frame.trailers
            start = {"type": "http.response.start", "status": frame.status, "headers": frame.headers}
            if frame.trailers:
                start["trailers"] = True
            await self._send(start)
            if frame.body is not None:
                await self._send({"type": "http.response.body", "body": frame.body, "more_body": False})
                if not self._trailers:
                    return COMPLETE
        elif frame is Signal.TAKEN:
            self.taken = True
            if self.uploaded:
                self._body.drop()
            if not self._holds:
                self._start()  # a placed request has nothing to upload perhaps; its owner is told if the client leaves
        elif frame is Signal.READS:
            self._holds = False
            self._start()
        elif frame is Signal.FAILED:
            logged_by_owner()
            return BROKEN_OFF  # the server makes up for what is missing as it would for an app of its own
        elif type(frame) is Message:
            await self._send(frame.content)
            if frame.content["type"] == "http.response.trailers" and not frame.content.get("more_trailers", False):
                return COMPLETE
        elif type(frame) is Ack:
            self.uploaded = True  # nothing but Open was sent: the connection is clean
            return refusal(frame)
        return None

    def _lost(self) -> Outcome | None:
        if self._left:
            return BROKEN_OFF
        if self._link.fault is not None:
            return BROKEN_OFF
        return OwnerLost(started=True) if self._started else None

    def _start(self) -> None:
        """Begin to listen to the client: one task for the rest of its body and its disconnect."""
        if self._watch is None:
            self._watch = asyncio.get_running_loop().create_task(self._carry())

    async def _carry(self) -> None:
        link = self._link
        try:
            while not self.uploaded:
                message = await self._body()
                if message["type"] == "http.disconnect":
                    break
                more = message.get("more_body", False)
                await link.write_body(message.get("body", b""), more=more)
                if link.lost:
                    return
                self.uploaded = not more
            await self._body.disconnected()
        except Exception:
            logger.exception("relay: the request's body could not be read")
        self._left = True
        link.abort()


def refusal(ack: Ack) -> Outcome:
    """What an owner's no means."""
    if ack.verdict is Verdict.NOT_OWNER:
        return NotOwner(ack.incarnation)
    if ack.verdict is Verdict.DRAINING:
        return Draining()
    if ack.verdict is Verdict.LATE:
        return Late()
    if ack.verdict is Verdict.GONE:
        return Gone()
    return Refused(ack.kind, ack.facts)
