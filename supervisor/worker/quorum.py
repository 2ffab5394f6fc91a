"""When a worker of a starting fleet begins to accept connections.

The workers of a fleet boot at the same time and are never ready at the same instant. If the first one accepted at
once, it would be the only ready one, and would get every session that the waiting clients start. So a worker that is
ready lets connections wait in the listener's queue until more of the fleet are up than are still to come. Who fails to
boot is not waited for, and nobody is for long; beside workers that serve already, a new one never waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from shmclaims import SeatState, SeatView

LONGEST_SECONDS = 5.0
POLL_SECONDS = 0.02

UP = (SeatState.READY, SeatState.DRAINING)


def reached(seats: Iterable[SeatView], me: int) -> bool:
    """Whether more workers are up, this one (of index `me`) among them, than are booting."""
    others = [seat.state for seat in seats if seat.index != me]
    return 1 + sum(state in UP for state in others) > others.count(SeatState.BOOTING)


async def wait(seats: Callable[[], Iterable[SeatView]], me: int, *, longest_seconds: float = LONGEST_SECONDS) -> None:
    """Return when it is reached, or after `longest_seconds`."""
    loop = asyncio.get_running_loop()
    until = loop.time() + longest_seconds
    while True:
        if reached(seats(), me) or loop.time() >= until:
            return
        await asyncio.sleep(POLL_SECONDS)
