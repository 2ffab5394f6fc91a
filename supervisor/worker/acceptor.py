"""Accepting public connections from a listener that all workers of a server share, in turns.

The kernel wakes all workers, and the first one takes all it can: of 100 connections opened at once, one of four workers
got 91 to 97. So a worker takes as many as its turn allows (`turns`), and one that already has more than the others lets
them go first for a millisecond or two, and then takes one all the same: nobody waits for who does not come.

A listener of its own for each worker (SO_REUSEPORT, steered by BPF or not) is cheaper for a connection, but a worker
that boots, stalls or drains keeps getting its share and lets it hang, its queue is lost with it, and a listener that
was inherited or is a Unix socket cannot be had twice. docs/performance.md has the figures.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable

from supervisor.worker.beginnings import Beginnings
from supervisor.worker.turns import Turns

logger = logging.getLogger("gym_supervise.worker")

PASS_SECONDS = 0.001
MOST_PASSES = 2
"""In a row: the others may be at work. With one, 100 connections at once are spread 26 to 24; with two 25 to 25, in
22 ms instead of 16; more change nothing.
"""
EXHAUSTED_PAUSE_SECONDS = 0.1
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Accepts from one shared, non-blocking listener for one worker, as `turns` allows."""

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        turns: Turns,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._listener = listener
        self._protocol = protocol
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._beginnings = Beginnings(tls=tls)
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._passes = 0  # in a row

    @property
    def pending(self) -> int:
        """Connections that are accepted and have no protocol yet."""
        return len(self._beginnings)

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
        room = self._turns.room()
        if not room and self._passes < MOST_PASSES:
            self._passes += 1
            self._pause(PASS_SECONDS)
            return
        self._passes = 0
        self._accept(room or 1)

    def _accept(self, most: int) -> None:
        for _ in range(most):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                logger.error("overloaded: cannot accept (%s); raise LimitNOFILE or ulimit -n", error.strerror)  # noqa: TRY400
                self._pause(EXHAUSTED_PAUSE_SECONDS)
                break
            connection.setblocking(False)
            self._beginnings.add(connection, self._protocol)
        self._turns.publish()

    def _pause(self, seconds: float) -> None:
        # The listener stays readable: without taking the reader out, the loop would spin until it is not.
        self._loop.remove_reader(self._listener.fileno())
        self._timer = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listener.fileno(), self._on_readable)
