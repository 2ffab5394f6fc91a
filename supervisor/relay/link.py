"""The acceptor's end of one connection to an owner: frames in, bytes out, back-pressure both ways."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from supervisor.relay.frames import CHUNK, Frame, FrameReader, ProtocolError, body_word

logger = logging.getLogger("supervisor.relay")

# So many bytes of a reply may wait for a slow client before the owner's socket is left alone.
HIGH_WATER = 64 * 1024


class Link(asyncio.Protocol):
    """One request at a time; `Peer` keeps it between two."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[Link], None]) -> None:
        self._loop = loop
        self._on_lost = on_lost
        self._reader = FrameReader()
        self._frames: list[Frame] = []
        self._unread = 0
        self._reading_paused = False
        self._arrival: asyncio.Future[None] | None = None
        self._writable: asyncio.Event | None = None
        self.transport: asyncio.Transport
        self.lost = False
        self.idle = False  # in the pool: nothing may arrive
        self.idle_since = 0.0
        self.fault: str | None = None  # what the owner sent that no frame may be

    def __repr__(self) -> str:
        state = "lost" if self.lost else "idle" if self.idle else "busy"
        return f"<Link {state} frames={len(self._frames)} unread={self._unread} paused={self._reading_paused}>"

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._reader.feed(data)
        except ProtocolError as error:
            self._fail(str(error))
            return
        if self.idle:
            self._fail(f"{len(data)} bytes on a connection without a request")
            return
        if self._frames:
            self._frames += frames
        else:
            self._frames = frames
        self._unread += len(data)
        if self._unread > HIGH_WATER and not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._wake()
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

    async def read(self) -> list[Frame]:
        """The frames that have come, at least one; none when the connection is lost. One reader at a time."""
        while not self._frames and not self.lost:
            self._unread = 0
            self._resume_reading()
            self._arrival = self._loop.create_future()
            await self._arrival
        frames, self._frames = self._frames, []
        return frames

    async def write_body(self, data: bytes, *, more: bool) -> None:
        """Send a piece of the request's body, and wait while the owner does not take what was sent before."""
        if len(data) <= CHUNK:
            self.transport.writelines((body_word(len(data), more=more), data))
        else:
            view = memoryview(data)
            for start in range(0, len(data), CHUNK):
                piece = view[start : start + CHUNK]
                last = start + CHUNK >= len(data)
                self.transport.writelines((body_word(len(piece), more=more or not last), piece))
                await self._drain()
                if self.lost:
                    return
        await self._drain()

    def rest(self, now: float) -> None:
        """Wait in the pool, listening: an owner that closes the connection takes it out of there."""
        self.idle = True
        self.idle_since = now
        self._unread = 0
        self._resume_reading()

    def abort(self) -> None:
        """Drop the connection and what waits in it: the owner's app gets http.disconnect."""
        if not self.lost:
            self.transport.abort()

    def _fail(self, fault: str) -> None:
        logger.error("relay: an owner broke the protocol: %s", fault)
        self.fault = fault
        self.abort()

    def _resume_reading(self) -> None:
        if self._reading_paused and not self.lost:
            self._reading_paused = False
            self.transport.resume_reading()

    async def _drain(self) -> None:
        if self._writable is not None and not self.lost:
            await self._writable.wait()

    def _wake(self) -> None:
        arrival, self._arrival = self._arrival, None
        if arrival is not None and not arrival.done():
            arrival.set_result(None)
