"""Accepting public connections from a listener that all workers of a server share, in turns.

The kernel wakes whichever worker it likes: of 100 connections opened at once, one of four workers got 91 to 97. So a
worker takes one connection per wake-up, and one that already has more than the others lets them go first for a
millisecond. A listener of its own for each worker (SO_REUSEPORT) spreads better by itself, but a worker that boots,
stalls or drains keeps getting its share of connections and lets them hang.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable

logger = logging.getLogger("gym_supervise.worker")

PASS_SECONDS = 0.001
LEAD = 1  # connections that a worker may have more than the one with the fewest before it passes
EXHAUSTED_PAUSE_SECONDS = 0.1
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Accepts from one shared, non-blocking listener for one worker.

    `mine` and `fewest` say how many connections this worker has, and the ready worker with the fewest.
    """

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        *,
        mine: Callable[[], int],
        fewest: Callable[[], int],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._listener = listener
        self._protocol = protocol
        self._mine = mine
        self._fewest = fewest
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def pending(self) -> int:
        """Connections that are accepted and have no protocol yet."""
        return len(self._handshakes)

    def start(self) -> None:
        """Begin to accept."""
        self._loop.add_reader(self._listener.fileno(), self._on_readable)

    def stop(self) -> None:
        """Accept no more. Connections that wait in the queue stay there for the other workers."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()

    def _on_readable(self) -> None:
        if self._mine() > self._fewest() + LEAD:
            self._pause(PASS_SECONDS, self._accept)
        else:
            self._accept()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
            logger.error("overloaded: cannot accept (%s); raise LimitNOFILE or ulimit -n", error.strerror)  # noqa: TRY400
            self._pause(EXHAUSTED_PAUSE_SECONDS, lambda: None)
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._serve(connection))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _serve(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._protocol, connection, ssl=self._tls)
        except (OSError, ssl.SSLError) as error:
            logger.debug("a connection ended in its handshake: %s", error)
            connection.close()

    def _pause(self, seconds: float, then: Callable[[], None]) -> None:
        # The listener stays readable: without taking the reader out, the loop would spin until it is not.
        self._loop.remove_reader(self._listener.fileno())

        def resume() -> None:
            if not self._closed:
                self._loop.add_reader(self._listener.fileno(), self._on_readable)
                then()

        self._timer = self._loop.call_later(seconds, resume)
