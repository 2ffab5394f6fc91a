"""How many connections a worker may take now, so that all workers of a server get as many.

It reads the others' counts in shared memory. A worker that stalls keeps its count while the others' grow, and each of
their connections would let it go first: who has not beaten for a while is not reckoned with.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from shmclaims import OwnRow, WorkerRing
from supervisor.routing.placement import SILENT_SECONDS

LEAD = 1
"""Connections that a worker may have more than the one with the fewest, and still take another."""

UNLIMITED = 16
"""At once, where nobody else could take them: then the loop gets its turn."""

LOOK_SECONDS = 0.05
"""For so long it is remembered who the others are; a ring has 256 rows, and a connection costs less than reading it."""


class Turns:
    """One worker's, for all its listeners. `count` says how many connections it has, those in a handshake included."""

    def __init__(self, ring: WorkerRing, row: OwnRow, me: int, count: Callable[[], int]) -> None:
        self._ring = ring
        self._row = row
        self._me = me
        self._count = count
        self._others: list[int] = []
        self._looked_at = 0.0
        self._published = 0

    def room(self) -> int:
        """How many it may take; 0: others go first."""
        now = time.monotonic()
        if now - self._looked_at > LOOK_SECONDS:
            self._others = self._ring.other_connections(self._me, beaten_since=now - SILENT_SECONDS)
            self._looked_at = now
        mine = self.publish()
        if not self._others:
            return UNLIMITED
        return max(self._ring.fewest_connections(self._others) + LEAD + 1 - mine, 0)

    def publish(self) -> int:
        """Tell the others how many this worker has, and return it."""
        mine = self._count()
        if mine != self._published:
            self._row.set("connections", mine)
            self._published = mine
        return mine
