"""Replacing the workers of some seats, one after the other: a successor boots beside the worker that it replaces.

    successor ready    it takes the place, and the old worker drains
    successor failed   the old worker stays; another try after a pause, `tries` of them

A canary is a successor that is held when it is ready: it serves, but nobody gives his place up until `go_on`. It has
one try.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from supervisor.core.boot_failures import cause
from supervisor.core.effects import Effect
from supervisor.core.seat import Seat

if TYPE_CHECKING:
    from supervisor.core.server import Server


class Rollout:
    """One server's.

    incoming   the successor, while it has no place yet
    held       it is a canary, and ready
    failed     why there is no (further) successor, None while nothing failed
    replaced   how many workers have given their place up
    """

    def __init__(self, server: Server, indices: Iterable[int], reason: str, *, canary: bool = False) -> None:
        self.incoming: Seat | None = None
        self.held = False
        self.failed: str | None = None
        self.replaced = 0
        self.due: float | None = None
        self._server = server
        self._left = deque(indices)
        self._reason = reason
        self._canary = canary
        self._tries = 0

    def __repr__(self) -> str:
        return f"<Rollout {self._server.plan.name}: {self.replaced} replaced, {len(self._left)} left>"

    @property
    def over(self) -> bool:
        """Whether nothing more happens here."""
        return self.failed is not None or (self.incoming is None and not self._left)

    def start(self) -> list[Effect]:
        """Have the next successor started, if there is one to come."""
        self.due = None
        if not self._left or self.failed is not None:
            return []
        self.incoming = self._server.new_seat(self._left[0])
        self.incoming.seated = False
        return self._server.start_seat(self.incoming, candidate=self._canary)

    def ready(self, now: float) -> list[Effect]:
        """The successor serves."""
        self._tries = 0
        if self._canary:
            self.held = True
            return []
        return self._take_over(now)

    def go_on(self, now: float) -> list[Effect]:
        """The canary has shown that it works: it takes its place, and the others follow."""
        self._canary = self.held = False
        return self._take_over(now)

    def failed_boot(self, seat: Seat, how: str, now: float) -> list[Effect]:
        """The successor is gone before it had its place."""
        self.incoming = None
        self.held = False
        self._tries += 1
        effects = self._server.failures.show(seat)
        reason, tries = cause(seat, how), self._server.plan.boot_tries
        if self._canary or self._tries >= tries:
            self.failed = f"the new worker {seat.index} failed to boot: {reason}"
            return effects
        pause = self._server.policy.delay_seconds(self._tries, was_ready=False)
        self.due = now + pause
        text = f"the new worker {seat.index} failed to boot (try {self._tries} of {tries}): {reason}"
        return [*effects, seat.log("error", f"{text}; the old one stays, the next try is in {pause:g} s")]

    def give_up(self, reason: str, now: float) -> list[Effect]:
        """Nobody is to be replaced after all."""
        self.failed = self.failed or reason
        seat, self.incoming, self.held, self.due = self.incoming, None, False, None
        return [] if seat is None else self._server.leaving.add(seat, reason, now)

    def _take_over(self, now: float) -> list[Effect]:
        seat, self.incoming = self.incoming, None
        assert seat is not None
        self._left.popleft()
        self.replaced += 1
        old = self._server.seats[seat.index]
        self._server.seats[seat.index] = seat
        effects = [*seat.take_place_of(old), *self._server.leaving.add(old, self._reason, now)]
        return effects + self.start()
