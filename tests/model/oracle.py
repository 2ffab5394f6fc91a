"""What the fuzz holds to be true, kept apart from the table: who claimed which session, who lives, who is inside.

Everything is one 8-byte word in a shared mapping of its own. A worker notes a claim after it got it and takes the note
back before it releases; the supervisor takes a life back before it tells the table. So a note that is unchanged over a
lookup, by a worker that lives after it, must be what the lookup found.
"""

from __future__ import annotations

import mmap
import os
import traceback
from collections.abc import Callable

from shmclaims import Claim, ClaimState, Segment
from shmclaims.entrance import Entry

COUNTERS = (
    "claims",
    "already",
    "gone",
    "full",
    "releases",
    "touches",
    "lookups",
    "live_hits",
    "gone_hits",
    "cross_worker",
    "recycled",
    "violations",
)
MOST_INCARNATIONS = 1 << 17
MOST_WORKERS = 64
MOST_STRIPES = 64


class Oracle:
    """Notes, lives and violations."""

    def __init__(self, sessions: int) -> None:
        self._mapping = mmap.mmap(-1, 8 * (2 * sessions + MOST_INCARNATIONS + 2 * MOST_STRIPES + MOST_WORKERS * 16 + 1))
        words = memoryview(self._mapping).cast("Q")
        at = 0

        def take(count: int) -> memoryview:
            nonlocal at
            at += count
            return words[at - count : at]

        self.notes = take(sessions)  # incarnation << 32 | sequence number of the claim
        self.replacing = take(sessions)  # the note of a gone record that somebody set out to overwrite
        self.alive = take(MOST_INCARNATIONS)  # 1 alive, 2 marked dead
        self.inside = take(MOST_STRIPES)  # incarnation that is in the critical section
        self.leavings = take(MOST_STRIPES)  # how often anybody left the critical section
        self._counts = take(MOST_WORKERS * 16)
        self.stop = take(1)
        self._log = os.memfd_create("violations")

    def count(self, index: int, counter: str, amount: int = 1) -> None:
        self._counts[index * 16 + COUNTERS.index(counter)] += amount

    def total(self, counter: str) -> int:
        return sum(self._counts[COUNTERS.index(counter) :: 16].tolist())

    def violation(self, index: int, what: str) -> None:
        self.count(index, "violations")
        os.write(self._log, f"{what}\n".encode())

    def exception(self, index: int) -> None:
        self.violation(index, "EXCEPTION " + traceback.format_exc(limit=-3).replace("\n", " | "))

    def violations(self) -> list[str]:
        return os.pread(self._log, 1 << 20, 0).decode().splitlines()

    def claimed(self, index: int, session: int, incarnation: int, sequence: int) -> None:
        """A worker got a claim: nobody else who lives may have it."""
        before = self.notes[session]
        if before and self.alive[before >> 32] == 1:
            self.violation(index, f"TWO OWNERS of {session}: {before >> 32} lives, and {incarnation} claimed it")
        self.notes[session] = incarnation << 32 | sequence

    def judge(
        self,
        index: int,
        session: int,
        before: int,
        claim: Claim | None,
        again: Callable[[], Claim | None],
        *,
        kept: bool,
    ) -> None:
        """Compare a lookup with the note read before it; `kept`: gone records are never swept or recycled here."""
        note = self.notes[session]
        if claim is not None:
            if claim.user != session:
                self.violation(index, f"TORN {session}: {claim}")
            if claim.state is ClaimState.LIVE and self.alive[claim.incarnation] == 2:
                second = again()  # its death was told before this second look began
                if second is not None and second.incarnation == claim.incarnation and second.state is ClaimState.LIVE:
                    self.violation(index, f"DEAD BUT LIVE {session}: {second}")
        if not note or note != before:
            return
        owner = note >> 32
        if self.alive[owner] == 1:
            if claim is None or claim.incarnation != owner or claim.state is not ClaimState.LIVE:
                self.violation(index, f"MISSED {session}: {owner} holds it, found {claim}")
            self.count(index, "cross_worker")
        elif kept and claim is None and self.replacing[session] != note:
            self.violation(index, f"GONE RECORD LOST {session}: {owner} had it")

    def watch(self, segment: Segment, index: int, incarnation: int) -> None:
        """Check in this worker that nobody who lives is inside a stripe together with it."""
        entrance = segment.table._entrance
        enter, leave = entrance.enter, entrance.leave

        def entered(stripe: int, entry: Entry) -> None:
            enter(stripe, entry)
            other = self.inside[stripe]
            if other and self.alive[other] == 1:
                self.violation(index, f"TWO INSIDE stripe {stripe}: {other} and {incarnation}")
            self.inside[stripe] = incarnation

        def left(stripe: int) -> None:
            self.inside[stripe] = 0
            self.leavings[stripe] += 1
            leave(stripe)

        entrance.enter = entered  # type: ignore[method-assign]
        entrance.leave = left  # type: ignore[method-assign]
