"""The acceptor's end of one connection to an owner: frames in, bytes out, back-pressure both ways."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from supervisor.relay.codec import FrameReader, last_word, piece_word
from supervisor.relay.frames import CHUNK, COPIED, JOINED, Frame, ProtocolError

logger = logging.getLogger("gym_supervise.relay")

# So many bytes of a reply may wait for a slow client before the owner's socket is left alone.
HIGH_WATER = 64 * 1024


class Link(asyncio.Protocol):
    """One request at a time; `Peer` keeps it between two.

    frames  what has come and was not taken
    idle    in the pool: nothing may come
    lost    the connection is gone
    fault   what the owner sent that no frame may be, if it did
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[Link], None]) -> None:
        self._loop = loop
        self._on_lost = on_lost
        self._feed = FrameReader().feed
        self._unread = 0
        self.reading_paused = False
        self._arrival: asyncio.Future[None] | None = None
        self._writable: asyncio.Event | None = None
        self.transport: asyncio.Transport
        self.frames: list[Frame] = []
        self.idle = False
        self.lost = False
        self.fault: str | None = None

    def __repr__(self) -> str:
        state = "lost" if self.lost else "idle" if self.idle else "busy"
        return f"<Link {state} frames={len(self.frames)} unread={self._unread} paused={self.reading_paused}>"

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._feed(data)
        except ProtocolError as error:
            self._fail(str(error))
            return
        if self.frames:
            self.frames += frames
        else:
            self.frames = frames
        arrival = self._arrival
        if arrival is not None:
            self._arrival = None
            if not arrival.done():
                arrival.set_result(None)
            return
        if self.idle:
            self._fail(f"{len(data)} bytes on a connection without a request")
            return
        self._unread += len(data)
        if self._unread > HIGH_WATER and not self.reading_paused:
            self.reading_paused = True
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.lost = True
        arrival, self._arrival = self._arrival, None
        if arrival is not None and not arrival.done():
            arrival.set_result(None)
        if self._writable is not None:
            self._writable.set()
        self._on_lost(self)

    def pause_writing(self) -> None:
        self._writable = asyncio.Event()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    # for the exchange

    def arrival(self) -> asyncio.Future[None]:
        """Wait for frames, or for the end of the connection; when all that had come has been taken."""
        self._unread = 0
        if self.reading_paused:
            self.resume_reading()
        self._arrival = arrival = self._loop.create_future()
        return arrival

    def resume_reading(self) -> None:
        """Listen again, if a reply was larger than its client was fast."""
        self.reading_paused = False
        if not self.lost:
            self.transport.resume_reading()

    async def write_body(self, data: bytes, *, more: bool) -> None:
        """Send a piece of the request's body, and wait while the owner does not take what was sent before."""
        size = len(data)
        if size <= COPIED:
            self.transport.write((piece_word(size) if more else last_word(size)) + data)
            await self._drain()
            return
        view = memoryview(data)
        for start in range(0, size, CHUNK):
            piece = view[start : start + CHUNK]
            word = piece_word if more or start + CHUNK < size else last_word
            self.transport.write(word(len(piece)))
            self.transport.write(piece)
            await self._drain()
            if self.lost:
                return

    async def write_message(self, data: bytes, last: Callable[[int], bytes]) -> None:
        """Send a WebSocket's message, which ends with the word `last`, and wait as `write_body` does."""
        if len(data) > JOINED:
            await self.write_body(data, more=True)
            data = b""
        if not self.lost:
            self.transport.write(last(len(data)) + data)
            await self._drain()

    def abort(self) -> None:
        """Drop the connection and what waits in it: the owner's app gets http.disconnect."""
        if not self.lost:
            self.transport.abort()

    def _fail(self, fault: str) -> None:
        logger.error("relay: an owner broke the protocol: %s", fault)
        self.fault = fault
        self.abort()

    async def _drain(self) -> None:
        if self._writable is not None and not self.lost:
            await self._writable.wait()
