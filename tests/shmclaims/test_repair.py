"""Repair of stripes: lost and kept tokens, stopped and stuck holders, what the supervisor may conclude and what not."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from model.herd import Herd, Worker, until

from shmclaims import ClaimTimeout, RowState, Segment, StripeBusy, StripeCorrupt, StripeRepair
from shmclaims.layout import ABANDONED, Row, row_word
from shmclaims.stripes import SETTLE_SECONDS

NOW = 1_700_000_000


class Hands:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def intend(herd: Herd, incarnation: int, intent: int) -> None:
    herd.segment.words[row_word(incarnation) + Row.INTENT] = intent


def dead_with_intent(herd: Herd, *, token_lost: bool) -> int:
    """A worker that died inside: played, since where it was struck is the kill-point test's business."""
    one = herd.register(9)
    intend(herd, one, 1)
    if token_lost:
        herd.segment.stripes.semaphores[0].acquire(0)
    herd.segment.ring.mark_dead(one, now=NOW)
    herd.repair.begin(one)
    return one


def holder(herd: Herd, *, state: RowState = RowState.READY, index: int = 1) -> Worker:
    """A worker that stops (SIGSTOP) inside the critical section, with the token; SIGCONT lets it end."""

    def body(segment: Segment) -> None:
        choose = segment.table._choose

        def stop(*args: object, **kwargs: object) -> object:
            os.kill(os.getpid(), signal.SIGSTOP)
            return choose(*args, **kwargs)  # type: ignore[arg-type]

        segment.table._choose = stop  # type: ignore[method-assign,assignment]
        segment.table.try_claim(b"held", now=NOW)

    worker = herd.fork(body, index=index, state=state)
    until(lambda: stopped(worker.pid), "the holder to stop")
    return worker


def stopped(pid: int) -> bool:
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "T"


@pytest.fixture
def hands(herd: Herd) -> Iterator[Hands]:
    """The herd's repair on a clock that the test sets."""
    clock = Hands()
    herd.repair = StripeRepair(herd.segment, clock=clock)
    yield clock
    herd.repair._clock = time.monotonic


@pytest.mark.parametrize("token_lost", [True, False])
def test_a_dead_workers_stripe_is_restored(herd: Herd, token_lost: bool) -> None:
    """A missing token is posted, one that is there is kept; intent and flag are cleared, and all is counted."""
    dead = dead_with_intent(herd, token_lost=token_lost)
    assert herd.segment.stripes.flagged(0)
    assert herd.repair.pending == [0]
    herd.repair_all()
    assert herd.segment.stripes.semaphores[0].value == 1
    assert not herd.segment.stripes.flagged(0)
    assert herd.segment.words[row_word(dead) + Row.INTENT] == 0
    assert (herd.repair.repaired, herd.repair.lost, herd.segment.stripes.repairs(0)) == (1, int(token_lost), 1)
    assert herd.repair.step(time.monotonic()) is None


def test_no_intent_no_repair(herd: Herd) -> None:
    """A worker that died outside every stripe costs nothing: no flag is raised, nobody turns back."""
    one = herd.register()
    herd.segment.ring.mark_dead(one, now=NOW)
    herd.repair.begin(one)
    assert herd.repair.pending == []
    assert herd.repair.step(0.0) is None
    assert herd.repair.repaired == 0


def test_a_death_that_was_not_begun_is_found(herd: Herd) -> None:
    """The next step sees a dead intent by itself, whoever forgot to begin."""
    one = herd.register()
    intend(herd, one, 1)
    herd.segment.stripes.semaphores[0].acquire(0)
    herd.segment.ring.mark_dead(one, now=NOW)
    assert herd.repair.step(time.monotonic()) is not None
    herd.repair_all()
    assert herd.repair.lost == 1


def test_begin_before_the_death_is_marked_changes_nothing(herd: Herd) -> None:
    """A live worker's intent is its own: only mark_dead makes its stripe suspect."""
    one = herd.register()
    intend(herd, one, 1)
    herd.repair.begin(one)
    assert herd.repair.pending == []
    assert not herd.segment.stripes.flagged(0)
    intend(herd, one, 0)


def test_repair_waits_for_live_workers_in_every_live_state(make_herd: Callable[..., Herd]) -> None:
    """Booting, ready, draining and stopping workers may be inside: while one is, a value of 0 is its own token."""
    for state in (RowState.BOOTING, RowState.READY, RowState.DRAINING, RowState.STOPPING):
        herd = make_herd()
        clock = Hands()
        herd.repair = StripeRepair(herd.segment, clock=clock)
        live = herd.register(1, state)
        dead_with_intent(herd, token_lost=True)  # the live one holds it, in truth
        intend(herd, live, 1)
        for _ in range(50):
            clock.now += 1.0
            assert herd.repair.step(clock.now) is not None
            assert herd.segment.stripes.semaphores[0].value == 0
        herd.segment.stripes.semaphores[0].release()  # it leaves
        intend(herd, live, 0)
        herd.repair._clock = time.monotonic
        herd.repair_all()
        assert (herd.repair.lost, herd.segment.stripes.semaphores[0].value) == (0, 1)


def test_the_second_look_comes_after_the_settling_time(herd: Herd, hands: Hands) -> None:
    """One quiet look decides nothing: a store may still be under way, and who is seen at the second is waited for."""
    live = herd.register(1)
    dead_with_intent(herd, token_lost=True)
    assert herd.repair.step(hands.now) == hands.now + SETTLE_SECONDS
    hands.now += SETTLE_SECONDS / 2
    assert herd.repair.step(hands.now) == pytest.approx(hands.now + SETTLE_SECONDS / 2)
    intend(herd, live, 1)  # its store arrives only now
    hands.now += SETTLE_SECONDS
    herd.repair.step(hands.now)
    assert herd.segment.stripes.semaphores[0].value == 0
    intend(herd, live, 0)
    hands.now += SETTLE_SECONDS
    herd.repair.step(hands.now)
    assert herd.segment.stripes.semaphores[0].value == 0
    hands.now += SETTLE_SECONDS
    assert herd.repair.step(hands.now) is None
    assert herd.segment.stripes.semaphores[0].value == 1


def test_an_old_now_does_not_shorten_the_settling_time(herd: Herd, hands: Hands) -> None:
    """The loop's `now` may be older than the flag's store: the settling time is read from the clock itself."""
    dead_with_intent(herd, token_lost=True)
    herd.repair.step(hands.now - 5.0)
    hands.now += SETTLE_SECONDS / 2
    assert herd.repair.step(hands.now) is not None
    assert herd.repair.pending == [0]
    hands.now += SETTLE_SECONDS
    assert herd.repair.step(hands.now) is None


def test_a_slow_look_does_not_shorten_the_settling_time(
    herd: Herd, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Descheduled right after its look, the supervisor knows no more than before: the time counts up to the look."""
    dead_with_intent(herd, token_lost=True)
    herd.repair.step(hands.now)
    intents = herd.segment.ring.intents

    def slow() -> list[tuple[int, int]]:
        found = intents()
        hands.now += SETTLE_SECONDS
        return found

    monkeypatch.setattr(herd.segment.ring, "intents", slow)
    assert herd.repair.step(hands.now) is not None
    assert herd.repair.pending == [0]
    assert herd.repair.step(hands.now) is None


def test_two_deaths_on_one_stripe_are_one_repair(herd: Herd) -> None:
    """A second worker that dies inside during the repair is repaired with it, and one token is posted, not two."""
    dead_with_intent(herd, token_lost=True)
    herd.repair.step(time.monotonic())
    dead_with_intent(herd, token_lost=False)
    herd.repair_all()
    assert (herd.repair.repaired, herd.repair.lost) == (1, 1)
    assert herd.segment.ring.intents() == []


def test_stripes_are_repaired_side_by_side(make_herd: Callable[..., Herd]) -> None:
    """A stripe whose holder is stuck does not delay the repair of another."""
    herd = make_herd(max_sessions=400, stripes=2)
    stuck, first, second = herd.register(0), herd.register(1), herd.register(2)
    for worker, stripe in ((stuck, 0), (first, 0), (second, 1)):
        intend(herd, worker, stripe + 1)
    herd.segment.stripes.semaphores[1].acquire(0)
    for worker in (first, second):
        herd.segment.ring.mark_dead(worker, now=NOW)
        herd.repair.begin(worker)
    until(lambda: herd.repair.step(time.monotonic()) and herd.repair.pending == [0], "the other stripe's repair")
    assert herd.segment.stripes.semaphores[1].value == 1
    intend(herd, stuck, 0)
    herd.repair_all()


def test_two_tokens_stop_the_service(herd: Herd) -> None:
    """More than one token cannot be explained by any death: an error, and the stripe stays shut."""
    one = dead_with_intent(herd, token_lost=False)
    herd.segment.stripes.semaphores[0].release()
    with pytest.raises(StripeCorrupt, match="found 2 tokens, expected 0 or 1"):
        herd.repair_all()
    assert herd.segment.stripes.flagged(0)
    herd.play(herd.register(1))
    with pytest.raises(StripeBusy):
        herd.segment.table.try_claim(b"session", now=NOW)
    herd.segment.stripes.semaphores[0].acquire(0)
    assert herd.repair.pending == [0]
    assert herd.segment.words[row_word(one) + Row.INTENT] == 1


@pytest.mark.parametrize("intent", [1 << 31, 0xFFFF, ABANDONED])
def test_an_intent_that_names_no_stripe_stops_the_service(herd: Herd, intent: int) -> None:
    """No worker writes that: the memory was changed by something else."""
    one = dead_with_intent(herd, token_lost=False)
    intend(herd, one, intent)
    herd.repair.begin(one)
    with pytest.raises(StripeCorrupt, match=r"found stripe -?\d+, expected one of \d+"):
        herd.repair.step(NOW)
    intend(herd, one, 0)


@pytest.mark.parametrize("ending", ["goes on", "is killed"])
def test_a_stopped_holder(herd: Herd, ending: str) -> None:
    """While it is stopped others time out, also with a death beside it; when it goes on or is killed, repair ends."""
    table = herd.segment.table
    stopped_one = holder(herd, state=RowState.DRAINING)
    herd.play(herd.register(2), 2)
    with pytest.raises(ClaimTimeout):
        table.claim(b"session", now=NOW, timeout=0.05)
    dead_with_intent(herd, token_lost=False)
    for _ in range(20):
        assert herd.repair.step(time.monotonic()) is not None
    with pytest.raises(ClaimTimeout):
        table.claim(b"session", now=NOW, timeout=0.05)
    assert herd.segment.stripes.semaphores[0].value == 0
    assert herd.segment.stripes.flagged(0)
    if ending == "goes on":
        os.kill(stopped_one.pid, signal.SIGCONT)
        assert herd.bury(stopped_one) == 0
        herd.repair_all()
        assert herd.repair.lost == 0
        claim = table.lookup(b"held")
        assert claim is not None
        assert claim.incarnation == stopped_one.incarnation
    else:
        herd.kill(stopped_one)
        herd.repair_all()
        assert herd.repair.lost == 1
        assert table.lookup(b"held") is None
    assert table.try_release(table.claim(b"session", now=NOW))


def test_a_stopped_holder_without_a_death_needs_no_repair(herd: Herd) -> None:
    """Nobody died: no flag is raised, others time out, and all goes on by itself."""
    stopped_one = holder(herd)
    herd.play(herd.register(2), 2)
    assert herd.repair.step(time.monotonic()) is None
    with pytest.raises(ClaimTimeout):
        herd.segment.table.claim(b"session", now=NOW, timeout=0.05)
    os.kill(stopped_one.pid, signal.SIGCONT)
    herd.segment.table.claim(b"session", now=NOW)
    assert herd.bury(stopped_one) == 0
    assert herd.repair.repaired == 0


def test_a_live_holder_is_stuck_after_so_long_inside(herd: Herd, hands: Hands) -> None:
    """Seen inside a flagged stripe look after look for the stall time, a live worker is named, to be killed."""
    live = herd.register(1)
    dead_with_intent(herd, token_lost=False)
    intend(herd, live, 1)
    for _ in range(700):
        herd.repair.step(hands.now)
        hands.now += 0.1
    assert herd.repair.stuck(hands.now, 60.0) == [live]
    assert herd.repair.stuck(hands.now, 80.0) == []
    herd.segment.ring.mark_dead(live, now=NOW)
    assert herd.repair.stuck(hands.now, 60.0) == []


def test_coming_and_going_is_not_stuck(herd: Herd, hands: Hands) -> None:
    """A worker that tries and turns back again and again is not inside, however often it is seen."""
    live = herd.register(1)
    dead_with_intent(herd, token_lost=False)
    for number in range(1000):
        intend(herd, live, 0 if number % 10 == 9 else 1)
        herd.repair.step(hands.now)
        hands.now += 0.1
        assert herd.repair.stuck(hands.now, 5.0) == []
    intend(herd, live, 0)


def test_a_paused_supervisor_makes_nobody_stuck(herd: Herd, hands: Hands) -> None:
    """Ten minutes between two looks were the machine's pause, not the worker's."""
    live = herd.register(1)
    dead_with_intent(herd, token_lost=False)
    intend(herd, live, 1)
    for _ in range(5):
        herd.repair.step(hands.now)
        hands.now += 600.0
    assert herd.repair.stuck(hands.now, 60.0) == []
    intend(herd, live, 0)


def test_an_abandoned_intent_of_a_live_worker_is_repaired(herd: Herd) -> None:
    """A worker that was thrown out lives on: its stripe is restored, its intent cleared, and it is not stuck."""
    live = herd.register(1)
    herd.segment.stripes.semaphores[0].acquire(0)
    intend(herd, live, ABANDONED | 1)
    assert herd.repair.step(time.monotonic()) is not None
    assert herd.repair.stuck(time.monotonic(), 0.0) == []
    herd.repair_all()
    assert herd.repair.lost == 1
    assert herd.segment.ring.intents() == []
    assert herd.segment.ring.is_live(live)


def test_an_abandoned_intent_of_a_dead_worker_is_repaired(herd: Herd) -> None:
    """Thrown out, and dead before the supervisor looked: the mark beside the stripe does not hide it."""
    one = herd.register(1)
    herd.segment.stripes.semaphores[0].acquire(0)
    intend(herd, one, ABANDONED | 1)
    herd.segment.ring.mark_dead(one, now=NOW)
    herd.repair.begin(one)
    assert herd.repair.pending == [0]
    herd.repair_all()
    assert herd.repair.lost == 1
    assert herd.segment.ring.register(1, now=NOW) == one + 1


def test_repr_shows_the_stripes(herd: Herd) -> None:
    """A person sees at a glance which stripe is in repair and which token is out."""
    dead_with_intent(herd, token_lost=True)
    assert repr(herd.segment.stripes) == "<Stripes 1 in_repair=[0] values=[0]>"
