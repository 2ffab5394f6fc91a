"""Which worker gets a new session. Pure; the counts are passed in.

The kernel spreads connections badly: of 100 opened at once, one worker of four can get 95. So the worker that accepts
a session's first request is a poor choice of owner, and the one with the fewest open sessions gets it.

The counts in shared memory lag behind by the placements that are still under way. Each worker adds its own; of those of
others it knows nothing, and in a burst all workers choose the same one. So the chosen worker looks again before it
takes the start, and says no when another has fewer by then: it alone knows what has come to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

SILENT_SECONDS = 1.25
"""A worker that has not beaten for so long, two and a half heartbeats, is taken for stalled: nothing new goes to it."""

LEAD = 2
"""So many sessions more than another a worker has when it says no: the bound on most - fewest. With 1, half as many
relays again are spent on noes while a burst lasts.
"""

MOST_NOES = 32
"""To one start; then the next one takes it. 200 starts at once on 4 workers get 2 on average, and 8 are not enough."""


class Placement:
    """Chooses owners for new sessions.

    `policy` is `least_sessions`, or `accepting` for the worker where the request landed. `me` is this worker's
    incarnation.
    """

    def __init__(self, policy: str, me: int) -> None:
        self.me = me
        self.policy = policy
        self._under_way: Counter[int] = Counter()

    def choose(self, candidates: Sequence[tuple[int, int, int]], avoid: frozenset[int] = frozenset()) -> int | None:
        """The incarnation that gets a new session, or None when no worker is ready.

        `candidates` are (incarnation, index, open sessions) of the ready workers; those in `avoid` have just said no.
        Ties go to this worker, then to the lowest index.
        """
        ready = [one for one in candidates if one[0] not in avoid]
        if not ready:
            return None
        if self.policy == "accepting" and any(incarnation == self.me for incarnation, _, _ in ready):
            return self.me

        def order(row: tuple[int, int, int]) -> tuple[int, bool, int]:
            incarnation, index, sessions = row
            # Connections are spread evenly, so the others are likely to have as much under way as this worker.
            return sessions + self._under_way[incarnation] * len(ready), incarnation != self.me, index

        chosen = min(ready, key=order)
        if chosen[0] == self.me and (others := [one for one in ready if one[2] + LEAD <= chosen[2]]):
            # What is under way may have arrived, and be counted twice. Who has fewer is asked, and can say no.
            chosen = min(others, key=lambda row: (row[2], row[1]))
        return chosen[0]

    def is_ahead(self, candidates: Iterable[tuple[int, int, int]]) -> bool:
        """Whether this worker has LEAD sessions more than another one of `candidates`: a start is better off there."""
        if self.policy == "accepting":
            return False
        counts = {incarnation: sessions for incarnation, _, sessions in candidates}
        return counts.get(self.me, 0) >= min(counts.values(), default=0) + LEAD

    def sent(self, incarnation: int) -> UnderWay:
        """A placement is under way: it counts until its answer."""
        self._under_way[incarnation] += 1
        return UnderWay(self._under_way, incarnation)


class UnderWay:
    """A placement that has not been answered yet."""

    __slots__ = ("_counts", "_incarnation")

    def __init__(self, counts: Counter[int], incarnation: int) -> None:
        self._counts: Counter[int] | None = counts
        self._incarnation = incarnation

    def answered(self) -> None:
        """The chosen worker has answered, or cannot be reached; what comes later is nothing new."""
        counts, self._counts = self._counts, None
        if counts is not None:
            counts[self._incarnation] -= 1
            if not counts[self._incarnation]:
                del counts[self._incarnation]
