"""The worker's heartbeat: a counter in its row, beaten by the event loop itself.

A thread would go on beating for a loop that is stuck. The supervisor counts its own ticks between two values.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from shmclaims import OwnRow

BEAT_SECONDS = 0.5
MEMORY_EVERY_BEATS = 10
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Heartbeat:
    """Beats until stopped; publishes memory and connections as it goes."""

    def __init__(self, row: OwnRow, connections: Callable[[], int]) -> None:
        self._row = row
        self._connections = connections
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Beat now and from now on."""
        self._beat()

    def stop(self) -> None:
        """Beat no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        self._row.beat(loop.time())
        self._connections()
        if self._count % MEMORY_EVERY_BEATS == 0:
            self._row.set("rss_bytes", resident_bytes())
        self._count += 1
        self._timer = loop.call_later(BEAT_SECONDS, self._beat)


def resident_bytes() -> int:
    """The process's resident memory, in bytes. procfs answers from memory: it does not block."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * PAGE_BYTES
