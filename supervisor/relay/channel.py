"""The owner's end of one connection: frames in, bytes out, back-pressure both ways."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from supervisor.relay import unix
from supervisor.relay.codec import FrameReader, encode
from supervisor.relay.frames import Ack, Frame, Last, Open, Piece, ProtocolError
from supervisor.relay.reply import Reply
from supervisor.relay.upload import Upload
from supervisor.relay.websocket.owner import OwnerSocket

if TYPE_CHECKING:
    from supervisor.relay.server import RelayServer

logger = logging.getLogger("gym_supervise.relay")


class Channel(asyncio.Protocol):
    """One request at a time; the next one may come when the reply is complete, though the app may still run.

    writable  None: the acceptor takes what is sent. Set when it does again, or when it is gone
    """

    def __init__(self, server: RelayServer, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.lost = False
        self.writable: asyncio.Event | None = None
        self._server = server
        self._feed = FrameReader().feed
        self._transport: asyncio.Transport
        self._reply: Reply | None = None  # of the request that is not answered yet
        self._upload: Upload | None = None
        self._socket: OwnerSocket | None = None  # a WebSocket is the last thing that a connection serves
        self._uploading = False  # its body, or that of the one before it, is not complete
        self._reading_paused = False

    def __repr__(self) -> str:
        state = "lost" if self.lost else "idle" if self._reply is None else "busy"
        return f"<Channel {state} uploading={self._uploading} paused={self._reading_paused}>"

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        try:
            sock = transport.get_extra_info("socket")
            unix.check_peer(sock, self._server.uid)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, unix.SEND_BUFFER)
        except unix.ForeignPeer as error:
            logger.error("relay: connection refused: %s", error)  # noqa: TRY400 (the trace says nothing more)
            self._transport.abort()
            return
        self._server.channels.add(self)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._feed(data):
                if type(frame) is Open:
                    self._open(frame)
                else:
                    self._take(frame)
        except ProtocolError as error:
            logger.error("relay: an acceptor broke the protocol: %s", error)  # noqa: TRY400 (as above)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.lost = True
        self._server.channels.discard(self)
        if self.writable is None:
            self.writable = asyncio.Event()
        self.writable.set()
        if self._reply is not None:
            self._reply.disconnected = True
        if self._upload is not None:
            self._upload.end()
        if self._socket is not None:
            self._socket.lost()

    def pause_writing(self) -> None:
        self.writable = asyncio.Event()

    def resume_writing(self) -> None:
        if self.writable is not None:
            self.writable.set()
            self.writable = None

    # for the request that is being served

    def refuse(self, ack: Ack) -> None:
        """Refuse the request; the connection is ready for another one."""
        self._reply = self._upload = self._socket = None
        self._uploading = False
        self.write(encode(ack))

    def write(self, data: bytes | memoryview) -> None:
        """Send now."""
        if not self.lost:
            self._transport.write(data)

    def write_two(self, word: bytes, data: memoryview) -> None:
        """Send now, without a copy."""
        if not self.lost:
            self._transport.write(word)
            self._transport.write(data)

    def done(self) -> None:
        """The reply is complete: the acceptor may send another request."""
        self._reply = None
        if self._upload is not None:
            self._upload.end()
            self._upload = None
        if self._reading_paused:
            self.resume_reading()

    async def drain(self) -> None:
        """Wait until `writable`."""
        if self.writable is not None:
            await self.writable.wait()

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
        if self._reply is not None:
            self._reply.own_up()
        self.close_socket()
        if not self.lost:
            self._transport.close()

    def close_socket(self) -> None:
        """Close the WebSocket, if it is one, as a server does that stops."""
        if self._socket is not None:
            self._socket.close()

    def _open(self, request: Open) -> None:
        if self._reply is not None or self._uploading or self._socket is not None:
            raise ProtocolError("Open on a connection whose request is not complete")
        server = self._server
        if request.incarnation != server.incarnation:
            self.write(encode(Ack.not_owner()))
            return
        if request.scope.type == "websocket":
            self._socket = socket = OwnerSocket(self)
            server.serve(request, socket, socket)
            return
        self._reply = reply = Reply(self)
        self._upload = upload = Upload(self, reply, request)
        self._uploading = request.more_body
        server.serve(request, reply, upload)

    def _take(self, frame: Frame) -> None:
        if self._socket is not None:
            self._socket.feed(frame)
            return
        if type(frame) is not Piece and type(frame) is not Last:
            raise ProtocolError(f"{frame!r} from an acceptor, which sends Open and bodies only")
        if not self._uploading:
            raise ProtocolError(f"{len(frame.data)} bytes of a body that is complete")
        self._uploading = more = type(frame) is Piece
        if self._upload is not None:
            self._upload.feed(frame.data, more=more)
