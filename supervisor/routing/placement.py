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

    def sent(self, incarnation: int) -> None:
        """A placement is under way: count it until it is answered."""
        self._under_way[incarnation] += 1

    def answered(self, incarnation: int) -> None:
        """The chosen worker has answered, or cannot be reached."""
        self._under_way[incarnation] -= 1
        if not self._under_way[incarnation]:
            del self._under_way[incarnation]
