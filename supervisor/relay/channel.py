"""The owner's end of one connection: frames in, bytes out, back-pressure both ways."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from supervisor.relay import unix
from supervisor.relay.frames import Ack, Body, Frame, FrameReader, Open, ProtocolError, body_word, encode
from supervisor.relay.outbox import Outbox

if TYPE_CHECKING:
    from supervisor.relay.server import RelayServer
    from supervisor.relay.serving import Serving

logger = logging.getLogger("supervisor.relay")


class Channel(asyncio.Protocol):
    """One request at a time; the next one may come when the reply is complete, though the app may still run."""

    def __init__(self, server: RelayServer, loop: asyncio.AbstractEventLoop) -> None:
        self.outbox = Outbox(loop, self.write)
        self._server = server
        self._feed = FrameReader().feed
        self._transport: asyncio.Transport
        self._serving: Serving | None = None  # the request whose reply is not complete
        self._uploading = False  # its body, or that of the one before it, is not complete
        self._receiver: Serving | None = None  # who gets that body
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
            for frame in self._feed(data):
                if type(frame) is Open:
                    self._open(frame)
                else:
                    self._upload(frame)
        except ProtocolError as error:
            logger.error("relay: an acceptor broke the protocol: %s", error)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.lost = True
        self._server.channels.discard(self)
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

    def refuse(self, ack: Ack) -> None:
        """Refuse the request; the connection is ready for another one."""
        self._serving = None
        self._receiver = None
        self._uploading = False
        self.write(encode(ack))

    def write(self, data: bytes) -> None:
        """Send now."""
        if not self.lost:
            self._transport.write(data)

    def write_chunk(self, data: memoryview, *, more: bool) -> None:
        """Send a large piece of the reply's body now, without a copy."""
        if not self.lost:
            self._transport.writelines((body_word(len(data), more=more), data))

    def done(self) -> None:
        """The reply is complete: the acceptor may send another request."""
        self._serving = None
        if self._reading_paused:
            self.resume_reading()

    @property
    def blocked(self) -> bool:
        """The acceptor does not take what was sent."""
        return self._writable is not None

    async def drain(self) -> None:
        """Wait until it does."""
        if self._writable is not None and not self.lost:
            await self._writable.wait()

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

    def close(self) -> None:
        """End the connection, with the word that a request which runs here was taken: nobody may run it again."""
        if self._serving is not None:
            self._serving.own_up()
        if not self.lost:
            self._transport.close()

    def _open(self, request: Open) -> None:
        if self._serving is not None or self._uploading:
            raise ProtocolError("Open on a connection whose request is not complete")
        self._uploading = request.more_body
        self._serving = self._receiver = self._server.opened(self, request)
        if self._serving is None:
            self._uploading = False

    def _upload(self, frame: Frame) -> None:
        if type(frame) is not Body:
            raise ProtocolError(f"{frame!r} from an acceptor, which sends Open and Body only")
        if not self._uploading:
            raise ProtocolError(f"{len(frame.data)} bytes of a body that is complete")
        self._uploading = frame.more
        if self._receiver is not None:
            self._receiver.feed(frame.data, more=frame.more)
            if not frame.more:
                self._receiver = None
