"""The stop of one server: everyone ends what he has, all shut down together, and at the deadline be killed."""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.core.effects import Effect
from supervisor.core.leaving import finish, kill
from supervisor.core.seat import Seat
from supervisor.core.worker_state import State


class Stop:
    """A stop under way. Before `finish_at` the workers end what they have; at `kill_at` what still runs is killed."""

    def __init__(self, graceful_seconds: float, now: float) -> None:
        self.kill_at = now + graceful_seconds
        self.finish_at = self.kill_at - min(1.0, graceful_seconds / 5)
        self.killed = False
        self._finishing = False

    def skip(self) -> None:
        """Somebody kills all processes: nothing is left to be done here."""
        self._finishing = self.killed = True

    def next_timer(self) -> float | None:
        """When `advance` has something to do, at the latest."""
        return None if self.killed else self.kill_at if self._finishing else self.finish_at

    def advance(self, seats: Sequence[Seat], too_late: str, now: float) -> list[Effect]:
        """The next part, when its time has come."""
        effects: list[Effect] = []
        serving = [seat for seat in seats if seat.state is State.STOPPING and not seat.finishing]
        if not self._finishing and (now >= self.finish_at or all(seat.quiet for seat in serving)):
            self._finishing = True
            effects += [finish(seat, max(self.kill_at - now, 0.0)) for seat in serving]
        if not self.killed and now >= self.kill_at:
            self.killed = True
            for seat in seats:
                if seat.live:
                    effects += kill(seat, too_late)
        return effects
