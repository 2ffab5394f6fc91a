"""Exceptions out of signal handlers, inside the critical section: the stripe comes back, and no orphan claim stays."""

from __future__ import annotations

import mmap
import random
import signal
import time
from collections.abc import Callable

import pytest
from model.herd import Herd, until
from model.strike import Strike

from shmclaims import AlreadyClaimed, ClaimTimeout, GoneSweep, Handle, Segment, StripeBusy, check
from shmclaims.entrance import Entry
from shmclaims.layout import ABANDONED

NOW = 1_700_000_000


class Boom(Exception):
    """What the handler raises."""


def boom() -> None:
    raise Boom


def attempt(op: Callable[[], Handle | bool], at: int) -> tuple[bool, Handle | bool | None]:
    """Run `op` with a Boom before its `at`-th bytecode: (was it thrown out, result)."""
    with Strike(at, boom):
        try:
            return False, op()
        except Boom:
            return True, None


def attempt_struck_twice(herd: Herd, op: Callable[[], Handle], at: int, then: int) -> tuple[bool, bool]:
    """As `attempt`, and again before the `then`-th bytecode of handling the first: (thrown out, struck twice)."""
    entrance = herd.segment.table._entrance
    handle_it, first, second = entrance.thrown_out, Strike(at, boom), Strike(then, boom)

    def struck_again(entry: Entry) -> None:
        first.__exit__()  # one tracer at a time; Python 3.11 has dropped it anyway, since it raised
        with second:
            handle_it(entry)

    entrance.thrown_out = struck_again  # type: ignore[method-assign]
    try:
        first.__enter__()
        op()
    except Boom:
        return True, second.seen >= then
    finally:
        del entrance.thrown_out
        if not second.seen:
            first.__exit__()
    return False, False


def claim_until_free(herd: Herd, session: bytes) -> Handle:
    """Claim, as the worker does, while the supervisor does its steps."""
    made: list[Handle] = []

    def tried() -> bool:
        herd.repair.step(time.monotonic())
        try:
            made.append(herd.segment.table.try_claim(session, now=NOW))
        except StripeBusy:
            return False
        return True

    until(tried, "the stripe to come back")
    return made[0]


def test_a_claim_thrown_out_at_any_bytecode(herd: Herd) -> None:
    """The caller got no handle: then there is no claim, or an audit finds it; and the worker can go on."""
    table = herd.segment.table
    herd.play(herd.register())
    sweep = GoneSweep(herd.segment)  # clears the tags left behind, or each claim would take longer than the one before
    at = orphans = abandoned = 0
    while True:
        at += 1
        thrown, handle = attempt(lambda: table.try_claim(b"session", now=NOW), at)
        if not thrown:
            break
        intents = herd.segment.ring.intents()
        assert all(intent & ABANDONED for _, intent in intents)
        if intents:
            abandoned += 1
            assert table.lookup(b"session") is None
            with pytest.raises(StripeBusy, match="thrown out"):
                table.try_claim(b"other", now=NOW)
        herd.repair_all()
        assert herd.segment.stripes.semaphores[0].value == 1
        assert check(herd.segment) == []
        left = table.audit([])
        orphans += len(left)
        assert all(table.try_release(one) for one in left)
        assert table.lookup(b"session") is None
        assert table.try_release(table.try_claim(b"other", now=NOW))
        sweep.step(time.time(), retention_seconds=None, budget=64)
    assert isinstance(handle, Handle)
    assert table.audit([handle]) == []
    assert at > 350
    assert abandoned > 150
    assert 0 < orphans < 40  # committed and left, and struck on the way to the caller
    assert herd.repair.lost > 120


def test_a_release_thrown_out_at_any_bytecode(herd: Herd) -> None:
    """The claim is still the handle's, or it is over; a second release settles it."""
    table = herd.segment.table
    herd.play(herd.register())
    at = 0
    while True:
        at += 1
        handle = table.try_claim(b"session", now=NOW)
        thrown, _ = attempt(lambda handle=handle: table.try_release(handle), at)  # type: ignore[misc]
        if not thrown:
            break
        herd.repair_all()
        assert check(herd.segment) == []
        held = table.lookup(b"session") is not None
        assert table.try_release(handle) is held
        assert table.lookup(b"session") is None
        assert table.audit([]) == []
    assert at > 100


@pytest.mark.parametrize("then", range(1, 40, 3))
def test_a_second_exception_while_the_first_is_handled(herd: Herd, then: int) -> None:
    """Struck again inside the handling of the first, the worker is not wedged: the supervisor frees it all the same."""
    table = herd.segment.table
    herd.play(herd.register())
    sweep = GoneSweep(herd.segment)  # clears the tags left behind, or each claim would take longer than the one before
    twice = 0
    for at in range(1, 700, 23):
        thrown, struck_twice = attempt_struck_twice(herd, lambda: table.try_claim(b"session", now=NOW), at, then)
        twice += struck_twice
        handle = claim_until_free(herd, f"other-{at}".encode())
        herd.repair_all()
        assert check(herd.segment) == []
        for left in table.audit([handle]):
            assert table.try_release(left)
        assert table.try_release(handle)
        assert table.lookup(b"session") is None
        sweep.step(time.time(), retention_seconds=None, budget=64)
        if not thrown:
            break
    else:
        pytest.fail("no claim got through")
    assert twice > 5 or then > 20


def test_a_handler_that_comes_back_to_the_table(herd: Herd) -> None:
    """A handler or finalizer that claims while its own process is inside is told so; no dead-lock."""
    table = herd.segment.table
    herd.play(herd.register())
    told: list[bool] = []

    def claim_again() -> None:
        try:
            table.try_release(table.try_claim(b"from the handler", now=NOW))
            told.append(False)
        except StripeBusy:
            told.append(True)

    for at in range(1, 500, 7):
        with Strike(at, claim_again):
            handle = table.try_claim(b"session", now=NOW)
        assert table.try_release(handle)
        assert check(herd.segment) == []
        assert herd.segment.ring.intents() == []
    assert True in told
    assert False in told


def test_real_signals_in_two_busy_workers(herd: Herd) -> None:
    """Timers raise inside two workers that claim and release on one stripe; the supervisor keeps the stripe going."""
    shared = memoryview(mmap.mmap(-1, 4096)).cast("Q")

    def worker(number: int) -> Callable[[Segment], None]:
        def body(segment: Segment) -> None:
            armed = False

            def handler(*_: object) -> None:
                if armed:  # a handler may run some bytecodes after its timer was stopped
                    raise Boom

            signal.signal(signal.SIGALRM, handler)
            rand, table, mine = random.Random(number), segment.table, f"worker-{number}".encode()
            for _ in range(400):
                handle: Handle | None = None
                try:
                    armed = True
                    signal.setitimer(signal.ITIMER_REAL, rand.uniform(5e-6, 60e-6))
                    try:
                        handle = table.claim(mine, now=NOW)
                        table.release(handle)
                    finally:
                        armed = False
                        signal.setitimer(signal.ITIMER_REAL, 0)
                except Boom:
                    shared[number] += 1
                except AlreadyClaimed as refused:
                    assert refused.claim.incarnation == table._incarnation  # an orphan of its own
                signal.setitimer(signal.ITIMER_REAL, 0)
                for left in table.audit([]):
                    table.release(left)
                assert table.lookup(mine) is None
                table.release(table.claim(b"the stripe is back " + mine, now=NOW))

        return body

    workers = [herd.fork(worker(number), index=number) for number in (1, 2)]
    pending = {one.pid: one for one in workers}

    def ended() -> bool:
        herd.repair.step(time.monotonic())
        for one in list(pending.values()):
            with open(f"/proc/{one.pid}/stat", encoding="ascii") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                    del pending[one.pid]
        return not pending

    until(ended, "the workers to end", seconds=60)
    assert [herd.bury(one) for one in workers] == [0, 0]
    assert shared[1] > 100
    assert shared[2] > 100
    assert herd.repair.lost > 0


def test_without_a_supervisor_an_abandoned_stripe_stays_shut(herd: Herd) -> None:
    """The worker does not guess whether it holds the token: until the supervisor looks, it takes no stripe at all."""
    table = herd.segment.table
    herd.play(herd.register())
    at = 0
    while not herd.segment.ring.intents():
        at += 10
        attempt(lambda: table.try_claim(b"session", now=NOW), at)
        for left in table.audit([]):
            table.try_release(left)
    with pytest.raises(ClaimTimeout):
        table.claim(b"session", now=NOW, timeout=0.05)
    claim_until_free(herd, b"session")
