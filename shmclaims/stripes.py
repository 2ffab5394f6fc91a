"""The stripes: one semaphore each, and how the supervisor restores one whose holder died.

A worker writes a stripe into its intent before it tries the semaphore and clears it after it has posted, so a dead
worker's intent names the one stripe whose token it may have taken with it. The semaphore alone cannot tell: a value
of 0 may be a live holder's. Repair therefore raises the stripe's flag, which makes newcomers turn back, and waits
until no live worker has the stripe in its intent; then a value of 0 is a lost token, and is posted.

Flag and intent are stored by different processes without fences: each may read the other's old word. The second look,
2 ms after the first quiet one, is longer than any store waits in a buffer, and a worker that is descheduled in
between has its stores flushed by the switch.

    killed                intent    token    repair
    before the intent     0         there    none
    intent .. acquire     stripe    there    quiesce, keep
    acquire .. post       stripe    taken    quiesce, post
    post .. clear         stripe    there    quiesce, keep
    after the clear       0         there    none

A live worker that was thrown out by an exception has ABANDONED beside the stripe; it takes no stripe until its intent
is cleared here, so the supervisor is then the word's only writer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import posix_ipc

from shmclaims.claims import ClaimError
from shmclaims.layout import ABANDONED, LOW_HALF, Geometry, Row, flag_word, row_word
from shmclaims.workers import WorkerRing

if TYPE_CHECKING:
    from shmclaims.segment import Segment

_INTENT = Row.INTENT.value
SETTLE_SECONDS = 0.002
LOOK_SECONDS = (0.0005, 0.01)  # between two looks at a stripe that is not quiet: grows
LONGEST_GAP_SECONDS = (
    0.25  # a longer gap between two looks was the supervisor's own pause, and counts for nobody's stall
)


class StripeCorrupt(ClaimError):
    """A semaphore has more than one token: exclusion in that stripe cannot be vouched for. The service must stop."""


class Stripes:
    """The semaphores and flags of one segment; without semaphores where it is attached for reading."""

    def __init__(self, words: memoryview, geometry: Geometry, semaphores: Sequence[posix_ipc.Semaphore]) -> None:
        self._words = words
        self.count = geometry.stripes
        self.semaphores = semaphores

    def flagged(self, stripe: int) -> bool:
        """Whether the stripe is in repair."""
        return bool(self._words[flag_word(stripe)])

    def repairs(self, stripe: int) -> int:
        """How often the stripe was repaired."""
        return int(self._words[flag_word(stripe) + 1])

    def __repr__(self) -> str:
        flagged = [stripe for stripe in range(self.count) if self.flagged(stripe)]
        return f"<Stripes {self.count} in_repair={flagged} values={[s.value for s in self.semaphores]}>"


class _Repair:
    """One stripe's repair under way."""

    def __init__(self) -> None:
        self.quiet_since: float | None = None
        self.pause = LOOK_SECONDS[0]
        self.looked_at: float | None = None
        self.stalled: dict[int, float] = {}  # live holder -> seconds that it was seen inside, look after look


class StripeRepair:
    """Restores stripes; in the supervisor only. Never waits: the loop calls `step` when it said.

    Call `step` at every tick of the supervisor as well: abandoned intents of live workers are found by looking.
    """

    def __init__(self, segment: Segment, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._words = segment.words
        self._ring: WorkerRing = segment.ring
        self._stripes: Stripes = segment.stripes
        self._clock = clock  # for the settling time alone: a loop's `now` may be older than the flag's store
        self._repairs: dict[int, _Repair] = {}
        self.repaired = 0
        self.lost = 0

    @property
    def pending(self) -> list[int]:
        """The stripes in repair."""
        return sorted(self._repairs)

    def begin(self, incarnation: int) -> None:
        """A worker was marked dead: raise the flag of the stripe that it may have held, if there is one.

        Does not raise: of an intent that names no stripe `step` says so.
        """
        stripe = (self._words[row_word(incarnation) + _INTENT] & LOW_HALF) - 1
        if 0 <= stripe < self._stripes.count and not self._ring.is_live(incarnation):
            self._flag(stripe)

    def step(self, now: float) -> float | None:
        """Do what can be done; returns when to call again (monotonic seconds), None when nothing is in repair.

        Raises StripeCorrupt, with the flag of a stripe that it names left up.
        """
        looked = self._clock()  # before the look, or being descheduled after it would count as settling time
        intents = self._ring.intents()
        for row, intent in intents:
            if intent & ABANDONED or not self._lives(row):
                stripe = (intent & LOW_HALF) - 1
                if not 0 <= stripe < self._stripes.count:
                    raise StripeCorrupt(f"an intent: found stripe {stripe}, expected one of {self._stripes.count}")
                self._flag(stripe)
        again = [self._advance(stripe, repair, intents, now, looked) for stripe, repair in list(self._repairs.items())]
        return min((when for when in again if when is not None), default=None)

    def stuck(self, now: float, stall_seconds: float) -> list[int]:
        """Live workers seen inside a flagged stripe for `stall_seconds`, look after look: the caller kills them."""
        del now  # seconds are counted in `step`, so that a paused machine makes nobody stuck
        return sorted(
            incarnation
            for repair in self._repairs.values()
            for incarnation, seconds in repair.stalled.items()
            if seconds >= stall_seconds and self._ring.is_live(incarnation)
        )

    def _lives(self, row: int) -> bool:
        return self._ring.is_live(self._words[row] >> 8)

    def _flag(self, stripe: int) -> None:
        if stripe not in self._repairs:
            self._words[flag_word(stripe)] = 1
            self._repairs[stripe] = _Repair()

    def _advance(
        self, stripe: int, repair: _Repair, intents: list[tuple[int, int]], now: float, looked: float
    ) -> float | None:
        inside = {self._words[row] >> 8 for row, intent in intents if intent == stripe + 1 and self._lives(row)}
        gap = 0.0 if repair.looked_at is None else min(max(now - repair.looked_at, 0.0), LONGEST_GAP_SECONDS)
        repair.stalled = {one: repair.stalled[one] + gap if one in repair.stalled else 0.0 for one in inside}
        repair.looked_at = now
        if inside:
            repair.quiet_since = None
            repair.pause = min(repair.pause * 1.5, LOOK_SECONDS[1])
            return now + repair.pause
        if repair.quiet_since is None:
            repair.quiet_since = self._clock()
            return now + SETTLE_SECONDS
        left = repair.quiet_since + SETTLE_SECONDS - looked
        if left > 0:
            return now + left
        self._finish(stripe)
        return None

    def _finish(self, stripe: int) -> None:
        words, semaphore = self._words, self._stripes.semaphores[stripe]
        if semaphore.value > 1:
            raise StripeCorrupt(f"stripe {stripe}: found {semaphore.value} tokens, expected 0 or 1")
        if semaphore.value == 0:
            semaphore.release()
            self.lost += 1
        for row, intent in self._ring.intents():
            if intent & LOW_HALF == stripe + 1 and (intent & ABANDONED or not self._lives(row)):
                words[row + _INTENT] = 0
        words[flag_word(stripe) + 1] += 1
        words[flag_word(stripe)] = 0
        del self._repairs[stripe]
        self.repaired += 1
