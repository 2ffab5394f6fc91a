"""The owner's end of one connection: frames in, bytes out, back-pressure both ways."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from supervisor.relay import unix
from supervisor.relay.frames import Ack, Body, Frame, FrameReader, Open, ProtocolError, body_word, encode

if TYPE_CHECKING:
    from supervisor.relay.server import RelayServer
    from supervisor.relay.serving import Serving

logger = logging.getLogger("supervisor.relay")

# So many bytes of small pieces are gathered before they are written within one turn of the loop.
GATHER = 64 * 1024


class Channel(asyncio.Protocol):
    """What is to be sent is gathered and written once in a turn of the loop, at the latest: a small reply leaves in
    one write with TAKEN before it, and the events of a stream that are ready together leave as one piece.
    """

    def __init__(self, server: RelayServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._reader = FrameReader()
        self._transport: asyncio.Transport
        self._serving: Serving | None = None  # the request whose reply is not complete
        self._uploading = False  # its body, or that of the one before it, is not complete
        self._receiver: Serving | None = None  # who gets that body
        self._frames: list[bytes] = []
        self._pieces: list[bytes] = []
        self._gathered = 0
        self._flushing = False
        self._writable: asyncio.Event | None = None
        self._reading_paused = False
        self.lost = False

    def __repr__(self) -> str:
        state = "lost" if self.lost else "idle" if self._serving is None else "busy"
        return f"<Channel {state} uploading={self._uploading} paused={self._reading_paused}>"

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        try:
            unix.check_peer(transport.get_extra_info("socket"), self._server.uid)
        except unix.ForeignPeer as error:
            logger.error("relay: connection refused: %s", error)
            self._transport.abort()
            return
        self._server.channels.add(self)

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._reader.feed(data)
            for frame in frames:
                self._take(frame)
        except ProtocolError as error:
            logger.error("relay: an acceptor broke the protocol: %s", error)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._server.channels.discard(self)
        self._server.unsaid.discard(self)
        if self._writable is not None:
            self._writable.set()
        for serving in (self._serving, self._receiver):
            if serving is not None:
                serving.disconnect()

    def pause_writing(self) -> None:
        self._writable = asyncio.Event()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    # for the request that is being served

    def answer(self, ack: Ack) -> None:
        """Refuse the request; the connection is ready for another one."""
        self._serving = None
        self._receiver = None
        self._uploading = False
        self.frame(encode(ack))
        self.flush()

    def frame(self, data: bytes) -> None:
        """Send a whole frame, with the next flush."""
        if self._pieces:
            self._seal(more=True)
        self._frames.append(data)

    def piece(self, data: bytes) -> None:
        """Send a piece of the reply's body, in this turn of the loop."""
        self._pieces.append(data)
        self._gathered += len(data)
        if self._gathered >= GATHER:
            self.flush()
        else:
            self.flush_soon()

    def last(self, data: bytes) -> None:
        """Send the last piece of the reply's body, now."""
        self._pieces.append(data)
        self._gathered += len(data)
        self._seal(more=False)
        self.flush()

    def chunk(self, data: memoryview, *, more: bool) -> None:
        """Send a large piece of the reply's body, now and without a copy; nothing else may be gathered."""
        if not self.lost:
            self._transport.writelines((body_word(len(data), more=more), data))

    def done(self) -> None:
        """The reply is complete: the acceptor may send another request."""
        self._serving = None

    def flush_soon(self) -> None:
        """Write what is gathered in this turn of the loop."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush_now)

    def flush_late(self) -> None:
        """Write what is gathered in a moment, if nothing else comes along with which it can go."""
        self._server.unsaid.add(self)

    def flush(self) -> None:
        """Write what is gathered."""
        if self._pieces:
            self._seal(more=True)
        frames = self._frames
        if frames and not self.lost:
            self._server.unsaid.discard(self)
            self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
        frames.clear()

    async def drain(self) -> None:
        """Wait while the acceptor does not take what was sent."""
        if self._writable is not None and not self.lost:
            await self._writable.wait()

    @property
    def blocked(self) -> bool:
        """`drain` would wait."""
        return self._writable is not None

    def pause_reading(self) -> None:
        """Leave the rest of the body with the acceptor."""
        if not self._reading_paused and not self.lost:
            self._reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take it again."""
        if self._reading_paused and not self.lost:
            self._reading_paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """Drop the connection."""
        if not self.lost:
            self._transport.abort()

    def _seal(self, *, more: bool) -> None:
        self._frames.append(body_word(self._gathered, more=more))
        self._frames += self._pieces
        self._pieces.clear()
        self._gathered = 0

    def _flush_now(self) -> None:
        self._flushing = False
        self.flush()

    def _take(self, frame: Frame) -> None:
        if type(frame) is Body:
            self._upload(frame)
        elif type(frame) is Open:
            self._open(frame)
        else:
            raise ProtocolError(f"{frame!r} from an acceptor, which sends Open and Body only")

    def _open(self, request: Open) -> None:
        if self._serving is not None or self._uploading:
            raise ProtocolError("Open on a connection whose request is not complete")
        self._uploading = request.more_body
        self._serving = self._receiver = self._server.opened(self, request)
        if self._serving is None:
            self._uploading = False

    def _upload(self, body: Body) -> None:
        if not self._uploading:
            raise ProtocolError(f"{len(body.data)} bytes of a body that is complete")
        self._uploading = body.more
        if self._receiver is not None:
            self._receiver.feed(body.data, more=body.more)
            if not body.more:
                self._receiver = None
