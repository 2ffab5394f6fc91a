"""Boots, deaths and pauses: what the fleet decides."""

from __future__ import annotations

import pytest
from core.fleets import Paper, logged, of

from supervisor.core import effects, events
from supervisor.core.events import Worker
from supervisor.core.server import ServerPlan
from supervisor.core.worker_state import IllegalStep, State

TWO = ServerPlan("app", 2, boot_tries=3, boot_seconds=10.0, graceful_seconds=20.0)


def failed(paper: Paper, worker: Worker, traceback: str) -> list[effects.Effect]:
    """A boot that ends with a traceback and exit status 3."""
    paper.tell(events.WorkerBootFailed(worker, traceback))
    return paper.die(worker, 3)


def test_a_start_fills_every_seat_of_every_server() -> None:
    """One worker for each seat, shown as booting and then as ready, to people and to the other workers."""
    paper = Paper(TWO, ServerPlan("other", 1))
    paper.start()
    assert paper.states() == [State.READY, State.READY]
    assert paper.states("other") == [State.READY]
    shown = [effect.state for effect in paper.done if isinstance(effect, effects.ShowRow) and effect.worker.index == 0]
    assert shown[:2] == [State.BOOTING, State.READY] or State.READY in shown
    last = [e for e in paper.done if isinstance(e, effects.ShowSeat) and (e.server, e.index) == ("app", 1)][-1]
    assert (last.state, last.incarnation, last.restarts) == (State.READY, paper.worker(1).incarnation, 0)


def test_one_death_is_one_replacement() -> None:
    """The seat waits a moment, then has a new worker; the other seats do not notice."""
    paper = Paper(TWO)
    first, second = paper.start()
    found = paper.die(second, -9, sessions=7)
    assert "7 open sessions" in logged(found, "warning")
    assert paper.states() == [State.READY, State.BACKOFF]
    assert paper.fleet.next_timer(paper.now) == pytest.approx(paper.now + 0.25)
    paper.tick(0.25)
    assert paper.states() == [State.READY, State.BOOTING]
    assert paper.worker(0) == first
    assert paper.worker(1) != second
    assert paper.fleet.servers["app"].seats[1].restarts == 1


def test_the_pause_grows_and_is_reset_by_a_good_run() -> None:
    """Deaths in a row double it; a worker that was ready for ten seconds starts it anew."""
    paper = Paper(ServerPlan("app", 1))
    paper.start()
    pauses = []
    for run_seconds in (0.0, 0.0, 0.0, 11.0, 0.0):
        paper.now += run_seconds
        paper.die(paper.worker(0))
        due = paper.fleet.next_timer(paper.now)
        assert due is not None
        pauses.append(due - paper.now)
        paper.tick(pauses[-1])
        paper.tell(events.WorkerReady(paper.worker(0)))
    assert pauses == pytest.approx([0.25, 0.5, 1.0, 0.25, 0.5])


def test_an_app_that_never_boots_ends_the_service() -> None:
    """After boot_tries failures of one seat: status 3, and the traceback of all of them once."""
    paper = Paper(TWO)
    paper.start(ready=False)
    while paper.fleet.exit_status is None:
        for worker in list(paper.alive):
            failed(paper, worker, f'File "x.py", line 3, at 0x{worker.incarnation:x}\nImportError: no module')
        paper.tick(5.0)
    assert paper.fleet.exit_status == 3
    text = logged(paper.done)
    assert text.count('File "x.py"') == 1
    assert "try 3 of 3" in text
    assert "given up" in text
    assert not of(paper.done, effects.Kill)
    assert not paper.alive


def test_two_different_failures_are_both_shown() -> None:
    """Only what is the same is left out."""
    paper = Paper(TWO)
    first, second = paper.start(ready=False)
    found = failed(paper, first, "ImportError: one") + failed(paper, second, "ValueError: two")
    assert logged(found).count("the app failed to boot") == 2


def test_a_server_that_was_ready_is_never_given_up() -> None:
    """Later failures only make the pause longer; the others go on."""
    paper = Paper(TWO)
    _, second = paper.start()
    paper.die(second)
    for _ in range(10):
        paper.tick(60.0)
        assert paper.states()[1] is State.BOOTING
        failed(paper, paper.worker(1), "ImportError: no module")
    assert paper.fleet.exit_status is None
    assert paper.states() == [State.READY, State.BACKOFF]
    paper.tick(60.0)
    paper.tell(events.WorkerReady(paper.worker(1)))
    assert paper.states() == [State.READY, State.READY]


def test_one_server_given_up_ends_the_others_gracefully() -> None:
    """They have sessions: they are stopped, not killed, and the status is 3."""
    paper = Paper(TWO, ServerPlan("broken", 1, boot_tries=1))
    paper.tell(events.Started())
    good = [worker for worker in paper.alive if worker.server == "app"]
    for worker in good:
        paper.tell(events.WorkerReady(worker))
    failed(paper, paper.worker(0, "broken"), "ImportError: no module")
    assert paper.states("broken") == [State.FAILED]
    assert paper.states() == [State.STOPPING, State.STOPPING]
    for worker in good:
        paper.tell(events.WorkerQuiet(worker))
    for worker in good:
        paper.die(worker, 0)
    assert paper.fleet.exit_status == 3


def test_a_boot_that_takes_too_long_is_killed_and_counted() -> None:
    """boot_seconds are for the boot alone; the log says so."""
    paper = Paper(TWO)
    first, second = paper.start(ready=False)
    paper.tell(events.WorkerReady(first))
    found = paper.tick(10.0)
    assert of(found, effects.Kill) == [effects.Kill(second)]
    assert "boot_seconds (10 s)" in logged(found, "error")
    assert paper.states() == [State.READY, State.BACKOFF]
    paper.now += 1000.0
    paper.tick()
    assert first in paper.alive


def test_a_boot_that_is_killed_dies_only_once() -> None:
    """While the killed process takes its time to go, it is not killed again."""
    paper = Paper(ServerPlan("app", 1, boot_seconds=10.0))
    paper.tell(events.Started())
    found = paper.fleet.handle(events.Tick(), paper.now + 10.0)
    assert of(found, effects.Kill)
    assert not of(paper.fleet.handle(events.Tick(), paper.now + 20.0), effects.Kill)


def test_no_process_to_be_had_is_a_failed_boot() -> None:
    """A fork that fails is tried again after a pause, and ends a service that never had a worker."""
    paper = Paper(ServerPlan("app", 1, boot_tries=3))
    paper.spawn_fails = True
    paper.start(ready=False)
    assert paper.states() == [State.BACKOFF]
    paper.tick(60.0)
    paper.tick(60.0)
    assert paper.fleet.exit_status == 3
    assert "no process" in logged(paper.done)


def test_a_worker_that_holds_a_stripe_for_too_long_is_killed() -> None:
    """Nobody gets the stripe before it is gone; one that is gone already is left alone."""
    paper = Paper(TWO)
    first, _ = paper.start()
    found = paper.tell(events.StripeHeld(first, 60.0))
    assert of(found, effects.Kill) == [effects.Kill(first)]
    assert "stripe" in logged(found, "error")
    assert not of(paper.tell(events.StripeHeld(first, 60.0)), effects.Kill)


def test_a_table_that_cannot_be_vouched_for_ends_the_service() -> None:
    """In order, with status 1."""
    paper = Paper(TWO)
    workers = paper.start()
    assert "cannot be vouched" in logged(paper.tell(events.TableBroken("app", "2 tokens")), "error")
    for worker in workers:
        paper.die(worker, 0)
    assert paper.fleet.exit_status == 1


def test_a_worker_that_is_told_to_stop_by_somebody_else_is_seen_to_its_end() -> None:
    """SIGTERM to one worker: it gets its time, is killed after it, and is replaced."""
    paper = Paper(TWO)
    first, _ = paper.start()
    found = paper.tell(events.WorkerQuiet(first))
    assert paper.states() == [State.STOPPING, State.READY]
    assert [type(effect) for effect in of(found, effects.Send)] == [effects.Send]
    found = paper.tick(20.0)
    assert of(found, effects.Kill) == [effects.Kill(first)]
    paper.tick(0.25)
    assert paper.states() == [State.BOOTING, State.READY]


def test_an_illegal_event_names_both_sides_and_changes_nothing() -> None:
    """A worker that is ready twice is a fault somewhere: it is said, and everything is as before."""
    paper = Paper(TWO)
    first, _ = paper.start()
    before = repr(paper.fleet)
    with pytest.raises(IllegalStep, match=r"app, worker 0, pid 1001: 'said ready' cannot happen in state 'ready'"):
        paper.fleet.handle(events.WorkerReady(first), paper.now)
    with pytest.raises(IllegalStep, match=r"'spawned' cannot happen in state 'ready'"):
        paper.fleet.handle(events.Spawned(Worker("app", 0, 99), 7), paper.now)
    assert repr(paper.fleet) == before
    assert paper.worker(0) == first
    paper.die(first)
    assert paper.states() == [State.BACKOFF, State.READY]


def test_what_a_dead_worker_said_changes_nothing() -> None:
    """A message of a former incarnation is not its successor's."""
    paper = Paper(TWO)
    first, _ = paper.start()
    paper.die(first)
    paper.tick(0.25)
    successor = paper.worker(0)
    for event in (events.WorkerReady(first), events.WorkerQuiet(first), events.WorkerDied(first, -9, "again")):
        assert paper.tell(event) == []
    assert paper.states()[0] is State.BOOTING
    assert paper.worker(0) == successor
