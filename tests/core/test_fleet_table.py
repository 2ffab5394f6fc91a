"""The fleet's table: a worker in every state against everything that can happen to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from core.fleets import Paper, of

from supervisor.core import effects, events
from supervisor.core.events import Event, Worker
from supervisor.core.messages import Finish
from supervisor.core.server import ServerPlan
from supervisor.core.worker_state import IllegalStep, State

S = State
PLAN = ServerPlan("app", 2, boot_tries=3, boot_seconds=10.0, graceful_seconds=20.0, drain_seconds=50.0)
ILLEGAL = "illegal"
KILLED = "killed"  # the fleet has it killed, in the state in which it is

EVENTS: dict[str, Callable[[Worker], Event]] = {
    "ready": events.WorkerReady,
    "boot failed": lambda worker: events.WorkerBootFailed(worker, "Traceback\nImportError: no"),
    "quiet": events.WorkerQuiet,
    "drained": events.WorkerDrained,
    "shared": events.WorkerShared,
    "cut": lambda worker: events.WorkerCut(worker, 2, ("a", "b")),
    "stalled": lambda worker: events.WorkerStalled(worker, 60.0, 2, "the stacks"),
    "stripe held": lambda worker: events.StripeHeld(worker, 60.0),
    "recycle due": lambda worker: events.RecycleDue(worker, "it has served enough"),
    "died": lambda worker: events.WorkerDied(worker, -9, "killed by SIGKILL", 2),
    "reaped": events.WorkerReaped,
    "boot time over": lambda _: events.Tick(),
}

TABLE: dict[State, dict[str, State | str]] = {
    # a seat without a process: what its last worker says is nobody's
    S.BACKOFF: {**dict.fromkeys(EVENTS, S.BACKOFF), "boot time over": S.BOOTING},
    S.FAILED: {**dict.fromkeys(EVENTS, S.FAILED)},
    S.BOOTING: {
        "ready": S.READY,
        "boot failed": S.BOOTING,
        "quiet": ILLEGAL,
        "drained": ILLEGAL,
        "shared": ILLEGAL,
        "cut": S.BOOTING,
        "stalled": KILLED,
        "stripe held": KILLED,
        "recycle due": S.BOOTING,
        "died": S.BACKOFF,
        "reaped": S.BOOTING,
        "boot time over": KILLED,
    },
    S.READY: {
        "ready": ILLEGAL,
        "boot failed": ILLEGAL,
        "quiet": S.STOPPING,
        "drained": ILLEGAL,
        "shared": S.READY,
        "cut": S.READY,
        "stalled": KILLED,
        "stripe held": KILLED,
        "recycle due": S.READY,  # until its successor is
        "died": S.BACKOFF,
        "reaped": S.READY,
        "boot time over": S.READY,
    },
    S.DRAINING: {
        "ready": ILLEGAL,
        "boot failed": ILLEGAL,
        "quiet": S.DRAINING,
        "drained": S.STOPPING,
        "shared": S.DRAINING,
        "cut": S.DRAINING,
        "stalled": KILLED,
        "stripe held": KILLED,
        "recycle due": S.DRAINING,
        "died": S.EMPTY,
        "reaped": S.DRAINING,
        "boot time over": S.DRAINING,
    },
    S.STOPPING: {
        "ready": S.STOPPING,
        "boot failed": S.STOPPING,
        "quiet": S.STOPPING,
        "drained": S.STOPPING,
        "shared": S.STOPPING,
        "cut": S.STOPPING,
        "stalled": KILLED,
        "stripe held": KILLED,
        "recycle due": S.STOPPING,
        "died": S.BACKOFF,
        "reaped": S.STOPPING,
        "boot time over": S.STOPPING,
    },
}


def fleet_in(state: State) -> tuple[Paper, Worker]:
    """A fleet whose worker 1 is in that state, or was the last one there."""
    paper = Paper(PLAN)
    paper.start(ready=state is not State.BOOTING)
    worker = paper.worker(1)
    match state:
        case State.BACKOFF:
            paper.die(worker)
        case State.FAILED:
            paper = Paper(ServerPlan("app", 2, boot_tries=1))
            paper.start(ready=False)
            worker = paper.worker(1)
            paper.die(worker, 3)
        case State.DRAINING:
            paper.tell(events.ScaleAsked("a test", "app", 1))
        case State.STOPPING:
            paper.tell(events.WorkerQuiet(worker))
    return paper, worker


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", TABLE)
def test_every_state_against_every_event(state: State, event: str) -> None:
    """It leads where the table says; the other worker does not notice; what is illegal changes nothing."""
    paper, worker = fleet_in(state)
    server = paper.fleet.servers["app"]
    seat = next(seat for seat in server.everyone if seat.index == 1)
    assert seat.state is state
    other = server.seats[0].state
    if event == "boot time over":
        paper.now += PLAN.boot_seconds
    happened, before = EVENTS[event](worker), repr(paper.fleet)
    expected = TABLE[state][event]
    if expected is ILLEGAL:
        with pytest.raises(IllegalStep, match=f"cannot happen in state {state.value!r}"):
            paper.fleet.handle(happened, paper.now)
        assert (repr(paper.fleet), seat.state) == (before, state)
        return
    found = paper.fleet.handle(happened, paper.now)
    kills = [effect for effect in of(found, effects.Kill) if effect == effects.Kill(worker)]
    if expected is KILLED:
        assert (len(kills), seat.state) == (1, state)
        assert not of(paper.fleet.handle(happened, paper.now), effects.Kill), "killed twice"
        return
    assert not kills
    after = seat.state if not of(found, effects.Spawn) or state is not State.BACKOFF else State.BOOTING
    assert after is expected
    if state is not State.FAILED and event != "boot time over":
        assert server.seats[0].state is other


def test_the_table_is_whole() -> None:
    """Every state that lasts has a row, every row every event."""
    assert set(TABLE) | {State.EMPTY, State.STARTING} == set(State)
    assert all(set(row) == set(EVENTS) for row in TABLE.values())


CHANGES: dict[str, Event] = {
    "reload": events.ReloadAsked("a test", 1),
    "scale up": events.ScaleAsked("a test", "app", 3, ticket=1),
    "scale down": events.ScaleAsked("a test", "app", 1, ticket=1),
    "drain": events.DrainAsked("a test", "app", 1, 1),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("state", [state for state in TABLE if state is not State.FAILED])
def test_every_state_against_every_change(state: State, change: str) -> None:
    """Whatever worker 1 is doing, the change is answered, and comes to its end once everybody does what he is told."""
    paper, _ = fleet_in(state)
    paper.tell(CHANGES[change])
    assert [effect.ticket for effect in of(paper.done, effects.Tell) if isinstance(effect, effects.Tell)][:1] == [1]
    for _ in range(30):
        paper.tick(1.0)
        for seat in paper.fleet.servers["app"].everyone:
            obey(paper, seat.worker, seat.state)
    outcomes = [effect.outcome for effect in paper.done if isinstance(effect, effects.Tell)]
    assert outcomes[-1] == ("failed" if (state, change) == (State.DRAINING, "drain") else "done")
    wanted = 3 if change == "scale up" else 1 if change == "scale down" or state is State.DRAINING else 2
    if (state, change) == (State.DRAINING, "reload"):
        wanted = 2  # the file's number again
    assert paper.states() == [State.READY] * wanted
    assert paper.leaving() == []


def obey(paper: Paper, worker: Worker, state: State) -> None:
    """What a worker does that is well."""
    match state:
        case State.BOOTING:
            paper.ready(worker)
        case State.DRAINING:
            paper.tell(events.WorkerDrained(worker))
        case State.STOPPING if worker in paper.alive:
            paper.die(worker, 0)


@pytest.mark.parametrize("asked", CHANGES.values(), ids=CHANGES.keys())
def test_nothing_is_changed_in_a_stop(asked: Event) -> None:
    """It is refused, and said so; who had asked before hears that it has failed."""
    paper = Paper(PLAN)
    paper.start()
    paper.tell(events.ReloadAsked("a test", 7))
    found = paper.tell(events.StopSignal("SIGTERM"))
    assert effects.Tell(7, "failed", "the service stops") in found
    found = paper.tell(asked)
    assert effects.Tell(1, "refused", "the service stops") in found
    assert not of(found, effects.Spawn, effects.Send)


def test_a_draining_worker_is_stopped_and_killed_like_the_others() -> None:
    """A stop does not forget who has no place any more."""
    paper = Paper(PLAN)
    paper.start()
    old = paper.worker(1)
    paper.tell(events.ScaleAsked("a test", "app", 1))
    paper.tell(events.StopSignal("SIGTERM"))
    for worker in list(paper.alive):
        paper.tell(events.WorkerQuiet(worker))
    assert [e.worker for e in paper.done if isinstance(e, effects.Send) and isinstance(e.message, Finish)] == [
        paper.worker(0), old,
    ]  # fmt: skip
    paper.tick(20.0)
    assert paper.fleet.exit_status == 0
    assert len(of(paper.done, effects.Kill)) == 2
