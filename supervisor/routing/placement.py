"""Which worker gets a new session. Pure; the counts are passed in.

The kernel spreads connections badly: of 100 opened at once, one worker of four can get 95. So the worker that accepts
a session's first request is a poor choice of owner, and the one with the fewest open sessions gets it. The counts in
shared memory lag behind by the placements that are still under way, so each worker adds its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class Placement:
    """Chooses owners for new sessions.

    `policy` is `least_sessions`, or `accepting` for the worker where the request landed. `me` is this worker's
    incarnation.
    """

    def __init__(self, policy: str, me: int) -> None:
        self.me = me
        self.policy = policy
        self._under_way: Counter[int] = Counter()

    def choose(self, candidates: Iterable[tuple[int, int, int]], avoid: frozenset[int] = frozenset()) -> int | None:
        """The incarnation that gets a new session, or None when no worker is ready.

        `candidates` are (incarnation, index, open sessions) of the ready workers; those in `avoid` have just said no.
        Ties go to this worker, then to the lowest index.
        """
        ready = [
            (incarnation, index, sessions) for incarnation, index, sessions in candidates if incarnation not in avoid
        ]
        if not ready:
            return None
        if self.policy == "accepting" and any(incarnation == self.me for incarnation, _, _ in ready):
            return self.me
        return min(ready, key=lambda row: (row[2] + self._under_way[row[0]], row[0] != self.me, row[1]))[0]

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
