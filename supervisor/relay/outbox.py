"""What an owner has to say on one connection, gathered so that what is ready together is written at once."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from supervisor.relay.frames import body_word

# So many bytes are gathered at most before they are written.
GATHER = 64 * 1024


class Outbox:
    """Frames and pieces of a body, in order, until `flush`.

    `drive` flushes whenever the app stops to wait for something: a small reply leaves in one write, the events of a
    stream that are ready together leave as one piece, and nothing that the app has sent is ever held back while it
    waits. What another task of the app sends is written in the same turn of the loop.
    """

    __slots__ = ("_frames", "_loop", "_pieces", "_scheduled", "_size", "_stepping", "_write")

    def __init__(self, loop: asyncio.AbstractEventLoop, write: Callable[[bytes], None]) -> None:
        self._loop = loop
        self._write = write
        self._frames: list[bytes] = []
        self._pieces: list[bytes] = []
        self._size = 0  # of the pieces
        self._stepping = False
        self._scheduled = False

    def __repr__(self) -> str:
        return f"<Outbox frames={len(self._frames)} bytes={self._size}>"

    def frame(self, data: bytes) -> None:
        """Send a whole frame."""
        if self._pieces:
            self._seal(more=True)
        self._frames.append(data)
        if not self._stepping:
            self._soon()

    def piece(self, data: bytes) -> None:
        """Send a piece of a body that goes on."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size >= GATHER:
            self.flush()
        elif not self._stepping:
            self._soon()

    def last(self, data: bytes) -> None:
        """Send the last piece of a body, and all that was gathered before it."""
        self._pieces.append(data)
        self._size += len(data)
        self._seal(more=False)
        self.flush()

    def flush(self) -> None:
        """Write what is gathered."""
        if self._pieces:
            self._seal(more=True)
        frames = self._frames
        if frames:
            self._write(b"".join(frames))
            frames.clear()

    @types.coroutine
    def drive(self, app: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
        """Await `app`, writing what it has sent whenever it waits, and at its end."""
        value: Any = None
        error: BaseException | None = None
        while True:
            self._stepping = True
            try:
                waits_for = app.send(value) if error is None else app.throw(error)
            except StopIteration:
                return
            finally:
                self._stepping = False
                if self._pieces or self._frames:
                    self.flush()
            error = None
            try:
                value = yield waits_for
            except GeneratorExit:
                app.close()
                raise
            except BaseException as thrown:
                error = thrown

    def _seal(self, *, more: bool) -> None:
        self._frames.append(body_word(self._size, more=more))
        self._frames += self._pieces
        self._pieces.clear()
        self._size = 0

    def _soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._now)

    def _now(self) -> None:
        self._scheduled = False
        self.flush()
