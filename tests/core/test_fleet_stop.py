"""The end of the service: in order, at once, and when something will not go."""

from __future__ import annotations

import pytest
from core.fleets import Paper, logged, of

from supervisor.core import effects, events
from supervisor.core.messages import Finish, StopAccepting
from supervisor.core.server import ServerPlan
from supervisor.core.worker_state import State

PLAN = ServerPlan("app", 3, graceful_seconds=20.0)
TERM = events.StopSignal("SIGTERM")


def sent(found: list[effects.Effect]) -> list[object]:
    """The messages among effects."""
    return [effect.message for effect in found if isinstance(effect, effects.Send)]


def test_a_stop_goes_in_order() -> None:
    """Nobody accepts any more; all are waited for; then all shut down together; the end when all are reaped."""
    paper = Paper(PLAN)
    workers = paper.start()
    found = paper.tell(TERM)
    assert sent(found) == [StopAccepting()] * 3
    assert of(found, effects.CloseListeners) == [effects.CloseListeners("app")]
    assert paper.states() == [State.STOPPING] * 3
    assert sent(paper.tell(events.WorkerQuiet(workers[0]))) == []
    assert sent(paper.tell(events.WorkerQuiet(workers[1]))) == []
    paper.now += 5.0
    assert sent(paper.tell(events.WorkerQuiet(workers[2]))) == [Finish(15.0)] * 3
    for worker in workers:
        assert paper.fleet.exit_status is None
        paper.die(worker, 0, reap=False)
    assert paper.fleet.exit_status is None
    for worker in workers:
        paper.reap(worker)
    assert paper.fleet.exit_status == 0
    assert paper.fleet.next_timer(paper.now) is None
    assert not of(paper.done, effects.Kill, effects.KillAll, effects.Terminate)


def test_a_worker_that_dies_during_a_stop_is_not_waited_for_and_not_replaced() -> None:
    """The others finish as soon as they are quiet."""
    paper = Paper(PLAN)
    workers = paper.start()
    paper.tell(TERM)
    paper.tell(events.WorkerQuiet(workers[0]))
    paper.tell(events.WorkerQuiet(workers[1]))
    assert sent(paper.die(workers[2])) == [Finish(20.0)] * 2
    paper.tick(1.0)
    assert not of(paper.done[-3:], effects.Spawn)
    assert paper.states() == [State.STOPPING, State.STOPPING, State.EMPTY]


def test_those_who_do_not_get_quiet_are_told_to_finish_before_the_deadline() -> None:
    """A second before the end, or a fifth of a short time, so that lifespans can shut down."""
    paper = Paper(PLAN)
    workers = paper.start()
    paper.tell(TERM)
    paper.tell(events.WorkerQuiet(workers[0]))
    assert paper.fleet.next_timer(paper.now) == paper.now + 19.0
    assert sent(paper.tick(19.0)) == [Finish(1.0)] * 3
    short = Paper(ServerPlan("app", 1, graceful_seconds=1.0))
    short.start()
    short.tell(TERM)
    assert short.fleet.next_timer(short.now) == pytest.approx(short.now + 0.8)


def test_what_still_runs_at_the_deadline_is_killed() -> None:
    """By then it has had all of graceful_seconds; the log says who was cut."""
    paper = Paper(PLAN)
    workers = paper.start()
    paper.tell(TERM)
    paper.tick(19.0)
    paper.die(workers[0], 0)
    found = paper.tick(1.0)
    assert of(found, effects.Kill) == [effects.Kill(workers[1]), effects.Kill(workers[2])]
    assert "graceful_seconds (20 s)" in logged(found, "error")
    assert paper.fleet.exit_status == 0


def test_a_booting_worker_gets_the_signal_as_well() -> None:
    """In the middle of an import it reads no message; nothing waits for a boot that is not wanted any more."""
    paper = Paper(PLAN)
    workers = paper.start(ready=False)
    found = paper.tell(TERM)
    assert of(found, effects.Terminate) == [effects.Terminate(worker) for worker in workers]
    assert sent(found) == [Finish(20.0)] * 3
    assert paper.tell(events.WorkerReady(workers[0])) == []
    assert paper.states() == [State.STOPPING] * 3


def test_a_worker_that_is_being_started_when_the_stop_comes() -> None:
    """It is ended as soon as there is something to end."""
    paper = Paper(ServerPlan("app", 1))
    paper.fleet.handle(events.Started(), paper.now)
    paper.fleet.handle(TERM, paper.now)
    assert paper.fleet.exit_status is None
    worker, pid = paper.fork("app", 0)
    found = paper.tell(events.Spawned(worker, pid))
    assert of(found, effects.Terminate) == [effects.Terminate(worker)]
    paper.die(worker, -15)
    assert paper.fleet.exit_status == 0


def test_a_pause_is_cancelled_by_a_stop() -> None:
    """No worker is started any more."""
    paper = Paper(ServerPlan("app", 1))
    (worker,) = paper.start()
    paper.die(worker)
    assert paper.states() == [State.BACKOFF]
    paper.tell(TERM)
    assert paper.states() == [State.EMPTY]
    assert paper.fleet.exit_status == 0


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_second_signal_kills_at_once(name: str) -> None:
    """However soon it comes, when both come from the same side."""
    paper = Paper(PLAN)
    paper.start()
    paper.tell(TERM)
    paper.now += 0.01
    found = paper.tell(events.StopSignal(name))
    assert of(found, effects.KillAll)
    assert name in logged(found, "warning")
    assert paper.fleet.exit_status == 0


def test_one_order_that_comes_twice_is_one_order() -> None:
    """Both systemd and pkill signal guardian and supervisor alike: the forwarded copy is not a second signal."""
    for first, second in ((True, False), (False, True)):
        paper = Paper(PLAN)
        paper.start()
        paper.tell(events.StopSignal("SIGTERM", forwarded=first))
        paper.now += 0.5
        assert paper.tell(events.StopSignal("SIGTERM", forwarded=second)) == []
        paper.now += 1.0
        assert of(paper.tell(events.StopSignal("SIGTERM", forwarded=second)), effects.KillAll)


def test_quit_kills_at_once() -> None:
    """Without any grace, as the first thing or during a stop."""
    for before in ([], [TERM]):
        paper = Paper(PLAN)
        paper.start()
        for event in before:
            paper.tell(event)
        assert of(paper.tell(events.QuitSignal()), effects.KillAll)
        assert paper.fleet.exit_status == 0


def test_the_stop_command_is_a_first_signal_and_never_a_second() -> None:
    """Asked again it changes nothing; the next signal says how to hurry, the one after it does."""
    paper = Paper(PLAN)
    paper.start()
    assert sent(paper.tell(events.StopCommand())) == [StopAccepting()] * 3
    assert paper.tell(events.StopCommand()) == []
    assert not of(paper.tell(TERM), effects.KillAll)
    assert of(paper.tell(TERM), effects.KillAll)


def test_without_a_guardian_everything_ends_at_once() -> None:
    """Nobody would sweep up after the supervisor: it kills what there is and ends."""
    paper = Paper(PLAN)
    paper.start()
    assert of(paper.tell(events.GuardianDied()), effects.KillAll)
    assert paper.fleet.exit_status == 1


def test_what_the_kernel_does_not_let_go_does_not_hold_up_the_end() -> None:
    """A killed process that hangs in the kernel is named, and the service ends with status 1."""
    paper = Paper(ServerPlan("app", 1, graceful_seconds=20.0))
    paper.start()
    for event in (TERM, TERM):
        paper.fleet.handle(event, paper.now)
    due = paper.fleet.next_timer(paper.now + 21.0)
    assert due is not None
    assert due <= paper.now + 31.0
    found = paper.fleet.handle(events.Tick(), paper.now + 31.0)
    assert "1001" in logged(found, "error")
    assert paper.fleet.exit_status == 1


def test_after_the_end_nothing_happens() -> None:
    """Events that come late change nothing."""
    paper = Paper(PLAN)
    workers = paper.start()
    paper.tell(events.QuitSignal())
    assert paper.fleet.exit_status == 0
    for event in (TERM, events.Tick(), events.WorkerReady(workers[0]), events.GuardianDied()):
        assert paper.tell(event) == []
