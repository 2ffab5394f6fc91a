"""One relayed request at the owner: the ASGI receive and send that the app is run with."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Iterable
from typing import Any

from supervisor.relay.channel import Channel
from supervisor.relay.frames import CHUNK, FAILED, READS, TAKEN, Ack, Head, Message, Open, encode

# So many bytes of a request's body may wait for a slow app before the acceptor is stopped.
HIGH_WATER = 64 * 1024

# Headers between two neighbours (RFC 9110, 7.6.1): the acceptor's server makes its own.
HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"te"})


class Serving:
    """Tells the app what the server's own request cycle would tell it."""

    __slots__ = (
        "_body",
        "_body_sent",
        "_channel",
        "_complete",
        "_event",
        "_more",
        "_outbox",
        "_received",
        "_started",
        "_trailers",
        "_waiting",
        "_watched",
        "disconnected",
        "request",
        "task",
    )

    def __init__(self, channel: Channel, request: Open) -> None:
        self._channel = channel
        self._outbox = channel.outbox
        self.request = request
        self.task: asyncio.Task[None] | None = None
        self.disconnected = False
        # the request's body
        self._body: list[bytes] = [request.body]
        self._waiting = len(request.body)
        self._more = request.more_body
        self._received = False  # its end has been handed to the app
        self._watched = request.more_body and not request.holds_body  # the acceptor listens to its client
        self._event: asyncio.Event | None = None
        # the reply
        self._started = False
        self._trailers = False
        self._body_sent = False
        self._complete = False

    def __repr__(self) -> str:
        request = self.request
        state = "complete" if self._complete else "started" if self._started else "open"
        return f"<Serving {request.method} {request.path} {state} waiting={self._waiting} left={self.disconnected}>"

    # ASGI

    async def receive(self) -> dict[str, Any]:
        """The next piece of the request's body; http.disconnect when the client left or the reply is complete."""
        while not (self.disconnected or self._complete):
            if not self._received and (self._waiting or not self._more):
                body = self._body
                data = body[0] if len(body) == 1 else b"".join(body)
                body.clear()
                self._waiting = 0
                self._received = not self._more
                return {"type": "http.request", "body": data, "more_body": self._more}
            if not self._watched:
                self._watched = True
                self._outbox.frame(READS)
            self._channel.resume_reading()
            if self._event is None:
                self._event = asyncio.Event()
            await self._event.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message of the reply; waits while the client does not take what was sent before."""
        channel = self._channel
        if channel.blocked:
            await channel.drain()
        if self.disconnected:
            return
        kind = message["type"]
        if kind == "http.response.body" and self._started and not self._body_sent:
            data = message.get("body", b"")
            more = message.get("more_body", False)
            if len(data) > CHUNK:
                await self._send_large(memoryview(bytes(data)), more=more)
            elif more:
                self._outbox.piece(bytes(data))
            else:
                self._body_sent = True
                self._outbox.last(bytes(data))
                if not self._trailers:
                    self._end()
        elif kind == "http.response.start" and not self._started:
            trailers = bool(message.get("trailers", False))
            headers = _end_to_end(message.get("headers", ()))
            self._outbox.frame(encode(Head(operator.index(message["status"]), headers, trailers)))
            self._trailers = trailers
            self._started = True
        else:
            self._send_other(kind, message)

    async def _send_large(self, data: memoryview, *, more: bool) -> None:
        """In chunks, so that a client that has stalled stops the copying, and one that has left ends it."""
        channel = self._channel
        self._outbox.flush()
        size = len(data)
        for start in range(0, size, CHUNK):
            if channel.blocked:
                await channel.drain()
            if self.disconnected:
                return
            channel.write_chunk(data[start : start + CHUNK], more=more or start + CHUNK < size)
        if not more:
            self._body_sent = True
            if not self._trailers:
                self._end()

    def _send_other(self, kind: str, message: dict[str, Any]) -> None:
        if kind == "http.response.early_hint" and not self._started:
            self._outbox.frame(encode(Message({**message, "links": list(message["links"])})))
        elif kind == "http.response.trailers" and self._body_sent and not self._complete:
            self._outbox.frame(encode(Message({**message, "headers": list(message["headers"])})))
            if not message.get("more_trailers", False):
                self._outbox.flush()
                self._end()
        elif self._complete:
            raise RuntimeError(f"unexpected ASGI message {kind!r}: the reply is complete")
        else:
            expected = "http.response.trailers" if self._body_sent else "http.response.body"
            expected = expected if self._started else "http.response.start"
            raise RuntimeError(f"expected ASGI message {expected!r}, found {kind!r}")

    # for the server

    def take(self) -> None:
        """Say that the request is taken, before the app's first line, where the acceptor waits for it.

        It waits with a body that is to follow, and it must know of a placed request: one that nobody has taken is
        placed elsewhere.
        """
        if self._more or self.request.mode == "placed":
            self._channel.write(TAKEN)

    def own_up(self) -> None:
        """Say it in any case: the connection is about to end under the app."""
        if not self._started:
            self._channel.write(TAKEN)

    def refuse(self, ack: Ack) -> None:
        """Nothing runs."""
        if not self.disconnected:
            self._channel.refuse(ack)

    def fail(self) -> None:
        """The app has ended without a whole reply: the acceptor answers 500, or breaks the client's connection off."""
        if not (self._complete or self.disconnected):
            self._outbox.frame(FAILED)
            self._outbox.flush()
            self._end()

    @property
    def lacks(self) -> str | None:
        """What the app should have done with its reply before it returned; None: nothing."""
        if self._complete or self.disconnected:
            return None
        return "completing" if self._started else "starting"

    # for the channel

    def feed(self, data: bytes, *, more: bool) -> None:
        """A piece of the request's body has come."""
        self._more = more
        if self._complete:
            return
        if data:
            if self._waiting:
                self._body.append(data)
            else:
                self._body = [data]
            self._waiting += len(data)
            if self._waiting > HIGH_WATER:
                self._channel.pause_reading()
        self._wake()

    def disconnect(self) -> None:
        """The client or the acceptor is gone."""
        if not self._complete:
            self.disconnected = True
        self._wake()

    def _end(self) -> None:
        self._complete = True
        self._channel.done()
        self._wake()

    def _wake(self) -> None:
        if self._event is not None:
            self._event.set()
            self._event = None


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(bytes(name), bytes(value)) for name, value in headers if name.lower() not in HOP_BY_HOP]
