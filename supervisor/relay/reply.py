"""A relayed request's reply at the owner: the ASGI send that the app is run with."""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any

from supervisor.relay.codec import FAILED, TAKEN, encode, last_word, piece_word
from supervisor.relay.frames import CHUNK, INLINE_BODY, LARGEST_FRAME, Ack, Head, Message

if TYPE_CHECKING:
    from supervisor.relay.channel import Channel

app_logger = logging.getLogger("uvicorn.error")  # where the server logs an app's errors, and people look for them

# So many bytes of small pieces are gathered at most before they are written.
GATHER = 64 * 1024

# Headers between two neighbours (RFC 9110, 7.6.1): the acceptor's server makes its own.
_NAMES = (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"te")
HOP_BY_HOP = frozenset((*_NAMES, *(name.title() for name in _NAMES)))  # ASGI says lower case; some apps do not


class Reply:
    """Takes what the server's own request cycle would take, in the same order, and gathers it.

    `drive` runs the app and writes what is gathered whenever the app waits for something: a small reply leaves in one
    write, the events of a stream that are ready together leave as one piece, and nothing is held back while the app
    waits. What another task of the app sends is written in the same turn of the loop.
    """

    disconnected = False
    complete = False
    task: asyncio.Task[None] | None = None
    _started = False
    _trailers = False
    _body_sent = False
    _size = 0  # of the pieces
    _head: Head | None = None  # held: it goes after the frames and before the pieces
    _stepping = False
    _scheduled = False

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._frames: list[bytes] = []
        self._pieces: list[bytes] = []

    def __repr__(self) -> str:
        state = "complete" if self.complete else "started" if self._started else "open"
        return f"<Reply {state} frames={len(self._frames)} bytes={self._size} left={self.disconnected}>"

    # ASGI

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message of the reply; waits while the client does not take what was sent before."""
        channel = self._channel
        if channel.writable is not None:
            await channel.drain()
            if self.disconnected:
                return
        kind = message["type"]
        if kind == "http.response.body" and self._started and not self._body_sent:
            data = message.get("body", b"")
            if message.get("more_body", False):
                if len(data) > CHUNK:
                    await self._send_large(data, more=True)
                else:
                    self._gather(data)
                return
            head = self._head
            if head is None or self._frames or self._pieces or len(data) > INLINE_BODY:
                await self._send_last(data)
            else:
                self._head = None
                channel.write(encode(Head(head.status, head.headers, data, head.trailers)))
            self._body_sent = True
            if not self._trailers:
                self._end()
        elif kind == "http.response.start" and not self._started:
            headers = message.get("headers", ())
            if type(headers) is not list:
                headers = list(headers)
            if not HOP_BY_HOP.isdisjoint(dict(headers)):
                headers = [header for header in headers if header[0] not in HOP_BY_HOP]
            self._trailers = trailers = message.get("trailers", False)
            self._head = Head(message["status"], headers, None, trailers)
            self._started = True
            if not self._stepping:
                self._soon()
        else:
            self._send_other(kind, message)

    def _gather(self, data: bytes) -> None:
        self._pieces.append(bytes(data))
        self._size += len(data)
        if self._size >= GATHER:
            self.flush()
        elif not self._stepping:
            self._soon()

    async def _send_last(self, data: bytes) -> None:
        if len(data) > CHUNK:
            await self._send_large(data, more=False)
            return
        if self._pieces:
            self._pieces.append(data)
            data = b"".join(self._pieces)
            self._pieces.clear()
            self._size = 0
        self._seal()
        self._frames += (last_word(len(data)), data)
        self.flush()

    async def _send_large(self, data: bytes, *, more: bool) -> None:
        """In chunks, so that a client that has stalled stops the copying, and one that has left ends it.

        Few frames: what comes of one is passed on as it comes, and only where one begins is something cut.
        """
        channel = self._channel
        self.flush()
        view = memoryview(bytes(data))
        size = len(data)
        for start in range(0, size, CHUNK):
            if channel.writable is not None:
                await channel.drain()
            if self.disconnected:
                return
            piece = view[start : start + CHUNK]
            if start % LARGEST_FRAME:
                channel.write(piece)
            else:
                rest = size - start
                word = piece_word if more or rest > LARGEST_FRAME else last_word
                channel.write_two(word(min(rest, LARGEST_FRAME)), piece)

    def _send_other(self, kind: str, message: dict[str, Any]) -> None:
        if kind == "http.response.early_hint" and not self._started:
            self.frame(encode(Message({**message, "links": list(message["links"])})))
        elif kind == "http.response.trailers" and self._trailers and self._body_sent and not self.complete:
            self.frame(encode(Message({**message, "headers": list(message["headers"])})))
            if not message.get("more_trailers", False):
                self.flush()
                self._end()
        elif self.complete:
            raise RuntimeError(f"unexpected ASGI message {kind!r}: the reply is complete")
        else:
            expected = "http.response.trailers" if self._body_sent else "http.response.body"
            expected = expected if self._started else "http.response.start"
            raise RuntimeError(f"expected ASGI message {expected!r}, found {kind!r}")

    # for the server

    def take(self) -> None:
        """Say that the request is taken."""
        self._channel.write(TAKEN)

    def own_up(self) -> None:
        """Say it if nothing has said it yet: the connection is about to end under the app."""
        if not self._started or self._head is not None:
            self._channel.write(TAKEN)

    def refuse(self, ack: Ack) -> None:
        """Nothing runs."""
        if not self.disconnected:
            self._channel.refuse(ack)

    def fail(self) -> None:
        """The app has ended without a whole reply: the acceptor answers 500, or breaks the client's connection off."""
        if not (self.complete or self.disconnected):
            self.frame(FAILED)
            self.flush()
            self._end()

    @property
    def lacks(self) -> str:
        """What of it is missing."""
        return "completing response" if self._started else "starting response"

    @types.coroutine
    def drive(self, app: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
        """Await `app`, writing what it has sent whenever it waits, and at its end."""
        value: Any = None
        error: BaseException | None = None
        while True:
            self._stepping = True
            try:
                waits_for = app.send(value) if error is None else app.throw(error)
            except BaseException as end:
                self._stepping = False
                self.flush()
                if type(end) is StopIteration:
                    return
                raise
            self._stepping = False
            error = None
            try:
                if self._head is not None or self._pieces or self._frames:
                    self.flush()
                value = yield waits_for
            except GeneratorExit:
                app.close()
                raise
            except BaseException as thrown:
                error = thrown

    # what is gathered

    def frame(self, data: bytes) -> None:
        """Send a frame after all that is gathered."""
        self._seal()
        self._frames.append(data)
        if not self._stepping:
            self._soon()

    def flush(self) -> None:
        """Write what is gathered."""
        frames, pieces = self._frames, self._pieces
        if len(pieces) == 1 and self._head is None and not frames:  # an event of a stream
            self._channel.write(piece_word(self._size) + pieces[0])
            pieces.clear()
            self._size = 0
            return
        self._seal()
        if frames:
            self._channel.write(b"".join(frames))
            frames.clear()

    def _seal(self) -> None:
        head, self._head = self._head, None
        if head is not None:
            try:
                self._frames.append(encode(head))
            except Exception:  # too large, or not what MessagePack can say: then there is no reply
                self._pieces.clear()
                self._size = 0
                raise
        if self._pieces:
            self._frames.append(piece_word(self._size))
            self._frames += self._pieces
            self._pieces.clear()
            self._size = 0

    def _soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._channel.loop.call_soon(self._now)

    def _now(self) -> None:
        self._scheduled = False
        try:
            self.flush()
        except Exception as error:
            app_logger.error("Exception in ASGI application\n", exc_info=error)  # noqa: TRY400 (uvicorn's own words)
            self.fail()

    def _end(self) -> None:
        self.complete = True
        self._channel.done()
