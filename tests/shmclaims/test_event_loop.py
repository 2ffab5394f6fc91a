"""A broken stripe under a running event loop: claims wait, the loop does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from model.herd import Herd

from shmclaims import ClaimTimeout, Handle, Segment, StripeBusy
from shmclaims.layout import Row, row_word

NOW = 1_700_000_000
CLAIM_SECONDS = 0.4
GAP_SECONDS = 0.05


async def claim(segment: Segment, session: bytes) -> Handle:
    """The router's way: one try, then an awaited pause that grows, with no intent left across it."""
    pause, end = 0.0002, time.monotonic() + CLAIM_SECONDS
    while True:
        try:
            return segment.table.try_claim(session, now=NOW)
        except StripeBusy:
            assert segment.words[segment.table._entrance._intent] == 0
        if time.monotonic() > end:
            raise ClaimTimeout
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.02)


async def blocking_claim(segment: Segment, session: bytes) -> Handle:
    """What must not be done on a loop."""
    return segment.table.claim(session, now=NOW, timeout=CLAIM_SECONDS / 4)


def moment() -> float:
    """Seconds on a clock that stands still while this thread is ready to run and the machine is busy with others."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            waited = int(file.read().split()[1]) / 1e9
    except FileNotFoundError:
        waited = 0.0
    return time.monotonic() - waited


async def longest_gap(work: Awaitable[object]) -> float:
    """Seconds between two turns of the loop, at most, while `work` goes on; waiting for a processor is left out."""
    longest = 0.0
    task = asyncio.ensure_future(work)
    last = moment()
    while not task.done():
        await asyncio.sleep(0)
        now = moment()
        longest, last = max(longest, now - last), now
    await task
    return longest


async def three(one: Callable[[Segment, bytes], Awaitable[Handle]], segment: Segment) -> None:
    outcomes = await asyncio.gather(*(one(segment, b"%d" % n) for n in range(3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ClaimTimeout] * 3


def break_stripe(herd: Herd, *, flagged: bool) -> None:
    """A worker has died with the token; with `flagged`, its repair has begun and is kept waiting by a live worker."""
    victim = herd.register(8)
    herd.segment.words[row_word(victim) + Row.INTENT] = 1
    herd.segment.stripes.semaphores[0].acquire(0)
    if flagged:
        herd.segment.ring.mark_dead(victim, now=NOW)
        herd.repair.begin(victim)


def mend(herd: Herd) -> None:
    for row in herd.segment.ring.rows():
        if row.index == 8 and herd.segment.ring.is_live(row.incarnation):
            herd.segment.ring.mark_dead(row.incarnation, now=NOW)
    herd.repair_all()


@pytest.mark.parametrize("flagged", [False, True], ids=["token lost", "in repair"])
def test_the_loop_goes_on(herd: Herd, flagged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three claims time out on a broken stripe; the loop has no gap over 50 ms, and the table never sleeps in it."""
    slept: list[float] = []
    herd.play(herd.register())
    break_stripe(herd, flagged=flagged)
    gaps = []
    for _ in range(5):  # a gap may be the machine's own: five runs, and the best one counts
        with monkeypatch.context() as patched:
            patched.setattr("shmclaims.table.time.sleep", slept.append)
            gaps.append(asyncio.run(longest_gap(three(claim, herd.segment))))
        if gaps[-1] < GAP_SECONDS:
            break
    assert min(gaps) < GAP_SECONDS
    assert slept == []
    mend(herd)
    assert asyncio.run(claim(herd.segment, b"afterwards"))


def test_a_blocking_claim_stops_the_loop(herd: Herd) -> None:
    """The control: the same three claims, blocking, leave gaps of their whole time-outs, and this test sees them."""
    herd.play(herd.register())
    break_stripe(herd, flagged=False)
    assert asyncio.run(longest_gap(three(blocking_claim, herd.segment))) > GAP_SECONDS
    mend(herd)


def test_lookups_do_not_notice_a_broken_stripe(herd: Herd) -> None:
    """Readers take no stripe: with the token lost and the flag up, every claim is still found."""
    herd.play(herd.register())
    for number in range(20):
        herd.segment.table.try_claim(b"%d" % number, now=NOW)
    break_stripe(herd, flagged=True)
    assert all(herd.segment.table.lookup(b"%d" % number) is not None for number in range(20))
    mend(herd)
