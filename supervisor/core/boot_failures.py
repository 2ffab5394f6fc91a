"""What is said about boots that failed: each cause once, however many workers have it."""

from __future__ import annotations

import re

from supervisor.core.effects import Effect
from supervisor.core.seat import Seat


class BootFailures:
    """Tracebacks of one server that have been logged since a worker was last ready."""

    def __init__(self) -> None:
        self._shown: set[str] = set()

    def forget(self) -> None:
        """A worker is ready: what fails from here on is news."""
        self._shown.clear()

    def show(self, seat: Seat) -> list[Effect]:
        """The traceback of a seat's failed boot, if there is one that was not shown yet."""
        if seat.traceback is None or (key := _same_failure(seat.traceback)) in self._shown:
            return []
        self._shown.add(key)
        return [seat.log("error", f"the app failed to boot:\n{seat.traceback.rstrip()}")]


def cause(seat: Seat, how: str) -> str:
    """Why a boot failed, in one line; `how` it ended where the app has said nothing."""
    return seat.traceback.rstrip().rpartition("\n")[2] if seat.traceback else how


def _same_failure(traceback: str) -> str:
    """The traceback without what differs from process to process: two workers that fail alike are shown once."""
    return re.sub(r"0x[0-9a-f]+|\d+", "#", traceback)
