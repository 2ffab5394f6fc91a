"""One request on one connection, at the acceptor: Open up, the rest of the body behind it, the reply down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from supervisor.relay.body import BodyReplay
from supervisor.relay.frames import Ack, Body, Head, Message, Signal, Verdict
from supervisor.relay.link import Link
from supervisor.relay.outcomes import Draining, Gone, NotOwner, Outcome, OwnerLost, Refused, Taken, Unreachable

logger = logging.getLogger("supervisor.relay")

Send = Callable[[dict[str, Any]], Awaitable[None]]

COMPLETE = Taken()
BROKEN_OFF = Taken(complete=False)

# What uvicorn answers when an app raises before its head.
ERROR_BODY = b"Internal Server Error"
ERROR_HEAD = {
    "type": "http.response.start",
    "status": 500,
    "headers": [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(ERROR_BODY)),
        (b"connection", b"close"),
    ],
}


class Exchange:
    """`run` it once. Afterwards `clean` says whether the connection is good for another request.

    uploaded  the whole body travels in Open
    holds     the client waits for `100 Continue`: its body is read only when the owner's app asks for it
    """

    __slots__ = ("_body", "_ended", "_holds", "_left", "_link", "_send", "_started", "_uploaded", "_watch", "taken")

    def __init__(self, link: Link, body: BodyReplay, send: Send, *, uploaded: bool, holds: bool) -> None:
        self._link = link
        self._body = body
        self._send = send
        self._uploaded = uploaded
        self._holds = holds
        self._left = False
        self._started = False
        self._ended = False
        self._watch: asyncio.Task[None] | None = None
        self.taken = False

    @property
    def clean(self) -> bool:
        """Request and reply have been carried to their ends."""
        return self._ended and self._uploaded

    async def run(self, opened: bytes) -> Outcome | None:
        """The outcome; None: the connection was lost before the reply began, `taken` says whether after TAKEN."""
        self._link.transport.write(opened)
        try:
            return await self._reply()
        finally:
            if self._watch is not None:
                self._watch.cancel()

    def watch(self) -> None:
        """From now on look for the client's disconnect. Once the owner takes an upload this happens by itself."""
        if self._uploaded and self._watch is None:
            self._start()

    async def _reply(self) -> Outcome | None:
        link = self._link
        send = self._send
        trailers = False
        while True:
            frames = await link.read()
            if not frames:
                return self._lost()
            ready: list[bytes] = []  # pieces that came together leave together
            for frame in frames:
                kind = type(frame)
                if kind is Body:
                    ready.append(frame.data)  # type: ignore[union-attr]
                    if frame.more:  # type: ignore[union-attr]
                        continue
                    self._ended = not trailers
                    data = ready[0] if len(ready) == 1 else b"".join(ready)
                    ready.clear()
                    await send({"type": "http.response.body", "body": data, "more_body": False})
                    if self._ended:
                        return COMPLETE
                elif kind is Head:
                    self._started = True
                    trailers = frame.trailers  # type: ignore[union-attr]
                    start = {"type": "http.response.start", "status": frame.status, "headers": frame.headers}  # type: ignore[union-attr]
                    if trailers:
                        start["trailers"] = True
                    await send(start)
                elif frame is Signal.TAKEN:
                    self.taken = True
                    if self._uploaded:
                        self._body.drop()
                    elif not self._holds:
                        self._start()
                elif frame is Signal.READS:
                    self._holds = False
                    self._start()
                elif kind is Ack:
                    self._ended = True
                    return self._refusal(frame)  # type: ignore[arg-type]
                elif frame is Signal.FAILED:
                    self._ended = True
                    if self._started:
                        await self._pass(ready)
                        return BROKEN_OFF
                    await send(ERROR_HEAD)
                    await send({"type": "http.response.body", "body": ERROR_BODY, "more_body": False})
                    return COMPLETE
                elif kind is Message:
                    await self._pass(ready)
                    content = frame.content  # type: ignore[union-attr]
                    await send(content)
                    if content["type"] == "http.response.trailers" and not content.get("more_trailers", False):
                        self._ended = True
                        return COMPLETE
            await self._pass(ready)

    async def _pass(self, ready: list[bytes]) -> None:
        if ready:
            data = ready[0] if len(ready) == 1 else b"".join(ready)
            ready.clear()
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    def _refusal(self, ack: Ack) -> Outcome:
        self._uploaded = True  # nothing of the body was sent: the connection is clean
        if ack.verdict is Verdict.NOT_OWNER:
            return NotOwner(ack.incarnation)
        if ack.verdict is Verdict.DRAINING:
            return Draining()
        if ack.verdict is Verdict.GONE:
            return Gone()
        return Refused(ack.kind, ack.facts)

    def _lost(self) -> Outcome | None:
        if self._left:
            return BROKEN_OFF
        if self._link.fault is not None:
            return BROKEN_OFF if self._started else Unreachable(self._link.fault)
        return OwnerLost(started=True) if self._started else None

    def _start(self) -> None:
        self._watch = asyncio.get_running_loop().create_task(self._carry())

    async def _carry(self) -> None:
        """Carry up what is left of the body, then wait for the client to go away; one task for both."""
        try:
            while not self._uploaded:
                message = await self._body()
                if message["type"] == "http.disconnect":
                    break
                more = message.get("more_body", False)
                await self._link.write_body(message.get("body", b""), more=more)
                if self._link.lost:
                    return
                self._uploaded = not more
            await self._body.disconnected()
        except Exception:
            logger.exception("relay: the request's body could not be read")
        self._left = True
        self._link.abort()
