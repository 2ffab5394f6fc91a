"""Reload, scale, drain and recycling: what the fleet decides, step by step."""

from __future__ import annotations

from dataclasses import replace

from core.fleets import Paper, logged, of

from supervisor.core import effects, events
from supervisor.core.changing import RECYCLE_PAUSE_SECONDS
from supervisor.core.events import Worker
from supervisor.core.fleet import Fleet
from supervisor.core.messages import Drain, Finish, Share
from supervisor.core.server import ServerPlan
from supervisor.core.worker_state import State

PLAN = ServerPlan("app", 3, boot_tries=3, graceful_seconds=20.0, drain_seconds=50.0)
ONE = replace(PLAN, workers=1)
RELOAD = events.ReloadAsked("a test", 1)


def sent(found: list[effects.Effect], kind: type) -> list[Worker]:
    """Who is told something of a kind."""
    return [effect.worker for effect in found if isinstance(effect, effects.Send) and isinstance(effect.message, kind)]


def told(paper: Paper, ticket: int = 1) -> list[str]:
    """What has become of a change, so far."""
    return [effect.outcome for effect in paper.done if isinstance(effect, effects.Tell) and effect.ticket == ticket]


def fail(paper: Paper, worker: Worker, text: str = "ImportError: no") -> list[effects.Effect]:
    """A boot that fails."""
    paper.tell(events.WorkerBootFailed(worker, f"Traceback\n{text}"))
    return paper.die(worker, 3)


def test_a_reload_goes_one_after_the_other_behind_a_canary() -> None:
    """One candidate; when it is ready the config is in force, and each next one starts when the last is ready."""
    paper = Paper(PLAN)
    old = paper.start()
    found = paper.tell(RELOAD)
    assert [(spawn.index, spawn.candidate) for spawn in paper.spawned[3:]] == [(0, True)]
    assert not of(found, effects.CommitConfig)
    assert not sent(found, Drain)
    found = paper.ready(paper.newest())
    assert len(of(found, effects.CommitConfig)) == 1
    assert sent(found, Drain) == [old[0]]
    assert [(spawn.index, spawn.candidate) for spawn in paper.spawned[4:]] == [(1, False)]
    assert found.index(effects.CommitConfig()) < found.index(paper.spawned[4])
    assert told(paper) == ["started"]
    for index in (1, 2):
        assert sent(paper.ready(paper.newest()), Drain) == [old[index]]
    assert told(paper) == ["started", "done"]
    assert paper.leaving() == [(0, State.DRAINING), (1, State.DRAINING), (2, State.DRAINING)]
    assert sent(paper.tell(events.WorkerDrained(old[1])), Finish) == [old[1]]
    paper.die(old[1], 0)
    assert paper.leaving() == [(0, State.DRAINING), (2, State.DRAINING)]
    found = paper.tick(50.0)
    assert sent(found, Finish) == [old[0], old[2]]
    assert "drain_seconds (50 s)" in logged(found, "warning")
    assert "2 sessions are cut: abc..., def..." in logged(
        paper.tell(events.WorkerCut(old[0], 2, ("abc", "def"))), "warning"
    )
    assert of(paper.tick(20.0), effects.Kill) == [effects.Kill(old[0]), effects.Kill(old[2])]
    assert paper.states() == [State.READY] * 3


def test_a_canary_that_fails_leaves_everything_as_it_was() -> None:
    """No commit, nobody drains; the reason is in the answer and the traceback in the log; dropped."""
    paper = Paper(PLAN)
    old = paper.start()
    paper.tell(RELOAD)
    found = fail(paper, paper.newest())
    assert not of(paper.done, effects.CommitConfig)
    assert len(of(found, effects.DropConfig)) == 1
    assert "ImportError: no" in logged(found, "error")
    assert told(paper) == ["started", "failed"]
    assert [paper.worker(index) for index in range(3)] == old
    assert paper.fleet.exit_status is None
    assert paper.tick(1000.0) == []


def test_one_servers_canary_that_fails_holds_all_servers_back() -> None:
    """The other's canary was ready and drains; it may have sessions already."""
    paper = Paper(PLAN, ServerPlan("other", 1))
    paper.start()
    paper.tell(RELOAD)
    share = next(effect for effect in paper.done if isinstance(effect, effects.Send))
    assert isinstance(share.message, Share)
    paper.tell(events.WorkerShared(share.worker))
    canaries = {worker.server: worker for worker in paper.alive if worker.incarnation > 4}
    paper.ready(canaries["app"])
    assert not of(paper.done, effects.CommitConfig)
    fail(paper, canaries["other"])
    assert told(paper) == ["started", "failed"]
    assert paper.leaving() == [(0, State.DRAINING)]
    assert paper.states() == [State.READY] * 3


def test_a_canary_that_dies_when_it_was_ready_has_failed() -> None:
    """It has not shown that it works."""
    paper = Paper(PLAN, ServerPlan("other", 1))
    paper.start()
    paper.tell(RELOAD)
    paper.tell(events.WorkerShared(paper.worker(0, "other")))
    canary = next(worker for worker in paper.alive if worker.server == "app" and worker.incarnation > 4)
    paper.ready(canary)
    paper.die(canary)
    assert told(paper) == ["started", "failed"]


def test_a_later_replacement_that_fails_is_tried_again_and_then_given_up() -> None:
    """After boot_tries the old workers stay where they are, and the answer says how many are new."""
    paper = Paper(PLAN)
    old = paper.start()
    paper.tell(RELOAD)
    paper.ready(paper.newest())
    for _ in range(3):
        fail(paper, paper.newest())
        paper.tick(60.0)
    assert told(paper) == ["started", "failed"]
    assert "only 1 workers are replaced" in logged(paper.done, "error")
    assert [paper.worker(1), paper.worker(2)] == old[1:]
    assert paper.states() == [State.READY] * 3


def test_a_config_that_is_refused_starts_nothing() -> None:
    """The reason is the answer."""
    paper = Paper(PLAN)
    paper.start()
    paper.next_plans = None
    found = paper.tell(RELOAD)
    assert told(paper) == ["started", "failed"]
    assert "nothing has changed: servers.app.bind" in logged(found, "error")
    assert len(paper.spawned) == 3


def test_a_reload_brings_the_files_number_of_workers() -> None:
    """More are started when the config is in force; those too many drain."""
    paper = Paper(PLAN)
    paper.start()
    for workers in (5, 2):
        paper.next_plans = {"app": replace(PLAN, workers=workers)}
        paper.tell(RELOAD)
        while State.BOOTING in [seat.state for seat in paper.fleet.servers["app"].everyone]:
            for seat in paper.fleet.servers["app"].everyone:
                if seat.state is State.BOOTING:
                    paper.ready(seat.worker)
        assert paper.states() == [State.READY] * workers
        paper.tick(50.0)
        for seat in paper.fleet.servers["app"].leaving:
            paper.die(seat.worker, 0)
    gone = [effect.index for effect in paper.done if isinstance(effect, effects.ShowSeat) and not effect.incarnation]
    assert {2, 3, 4} <= set(gone)


def test_reloads_wait_for_the_generation_that_drains() -> None:
    """Two that wait are one; both are answered; another change passes them."""
    paper = Paper(ONE)
    paper.start()
    paper.tell(RELOAD)
    paper.tell(events.WorkerShared(paper.worker(0)))
    old = paper.worker(0)
    paper.ready(paper.newest())
    assert told(paper) == ["started", "done"]
    for ticket in (2, 3):
        found = paper.tell(events.ReloadAsked("a test", ticket))
        assert told(paper, ticket) == ["queued"]
        assert "1 workers of the generation before still drain" in logged(found, "info")
    paper.tell(events.ScaleAsked("a test", "app", 2, ticket=4))
    paper.ready(paper.newest())
    assert told(paper, 4) == ["started", "done"]
    paper.tell(events.WorkerDrained(old))
    paper.die(old, 0)
    paper.ready(paper.newest())
    assert told(paper, 2) == told(paper, 3) == ["queued", "started", "done"] or told(paper, 2)[-1] == "done"
    assert len(of(paper.done, effects.CommitConfig)) == 2


def test_a_forced_reload_cuts_what_drains() -> None:
    """It begins when that is gone."""
    paper = Paper(PLAN)
    old = paper.start()
    paper.tell(RELOAD)
    for _ in range(3):
        paper.ready(paper.newest())
    found = paper.tell(events.ReloadAsked("a test", 2, force=True))
    assert sent(found, Finish) == old
    assert told(paper, 2) == ["queued"]
    for worker in old:
        paper.die(worker, 0)
    assert told(paper, 2) == ["queued", "started"]


def test_the_lone_worker_shares_before_a_second_one_is_started() -> None:
    """Nobody is forked before it has said so; what it cannot is the reason for which nothing changes."""
    paper = Paper(ONE)
    (first,) = paper.start()
    assert not paper.spawned[0].shared
    found = paper.tell(events.ScaleAsked("a test", "app", 2, ticket=1))
    assert sent(found, Share) == [first]
    assert len(paper.spawned) == 1
    paper.tell(events.WorkerShared(first, "TableFull: 500 sessions"))
    assert told(paper) == ["started", "failed"]
    assert "TableFull: 500 sessions" in logged(paper.done, "error")
    found = paper.tell(events.ScaleAsked("a test", "app", 2, ticket=2))
    assert sent(found, Share) == [first]
    paper.tell(events.WorkerShared(first))
    assert len(paper.spawned) == 2
    assert paper.spawned[1].shared
    paper.ready(paper.newest())
    assert told(paper, 2) == ["started", "done"]
    paper.tell(events.ScaleAsked("a test", "app", 1))
    paper.die(first)
    paper.tick(1.0)
    assert paper.spawned[2].shared, "the records of sessions that are gone are in the table"


def test_a_lone_worker_that_is_just_being_forked_is_waited_for() -> None:
    """It was asked for as one that has no siblings: until it is there and has shared, nobody else is started."""
    fleet = Fleet([ONE])
    (first,) = of(fleet.handle(events.Started(), 0.0), effects.Spawn)
    assert isinstance(first, effects.Spawn)
    assert not first.shared
    worker = Worker("app", 0, 1)
    for event in (
        events.ScaleAsked("a test", "app", 2, ticket=1),
        events.Spawned(worker, 7, first.key),
        events.WorkerReady(worker),
    ):
        assert not of(fleet.handle(event, 0.0), effects.Spawn)
    assert len(of(fleet.handle(events.WorkerShared(worker), 0.0), effects.Spawn)) == 1


def test_the_death_of_a_lone_worker_does_not_hold_a_change_up() -> None:
    """Its successor shares from the start."""
    paper = Paper(ONE)
    (first,) = paper.start()
    paper.tell(events.ScaleAsked("a test", "app", 2, ticket=1))
    paper.die(first)
    paper.tick(1.0)
    assert [spawn.shared for spawn in paper.spawned] == [False, True, True]


def test_a_number_that_cannot_be_is_refused() -> None:
    """0, too many, or more than one where sessions cannot be told apart."""
    paper = Paper(PLAN, ServerPlan("plain", 1, may_share=False))
    paper.start()
    for number, (server, workers, expected) in enumerate(
        [("app", 0, "expected 1 to 120"), ("app", 121, "expected 1 to 120"), ("plain", 2, "no affinity")], 1
    ):
        found = paper.tell(events.ScaleAsked("a test", server, workers, ticket=number))
        assert told(paper, number) == ["started", "failed"]
        assert expected in logged(found, "error")
    assert len(paper.spawned) == 4
    found = paper.tell(events.DrainAsked("a test", "app", 3, 9))
    assert "found no such worker, expected 0 to 2" in logged(found, "error")


def test_a_scale_whose_worker_does_not_boot_says_so_and_goes_on_trying() -> None:
    """The places are there; who asked hears of the failure at once."""
    paper = Paper(PLAN)
    paper.start()
    paper.tell(events.ScaleAsked("a test", "app", 4, ticket=1))
    fail(paper, paper.newest())
    assert told(paper) == ["started", "failed"]
    assert paper.states() == [State.READY] * 3 + [State.BACKOFF]
    paper.tick(60.0)
    paper.ready(paper.newest())
    assert paper.states() == [State.READY] * 4


def test_recycling_is_one_at_a_time_after_the_drain() -> None:
    """What is due meanwhile waits, and is said again; nothing is recycled while anything else changes."""
    paper = Paper(PLAN)
    old = paper.start()
    for worker in old:
        paper.tell(events.RecycleDue(worker, "it has served enough"))
    assert len(paper.spawned) == 4
    assert paper.spawned[3].index == 0
    paper.ready(paper.newest())
    paper.tell(events.RecycleDue(old[1], "it has served enough"))
    assert len(paper.spawned) == 4, "worker 0 still drains"
    paper.tell(events.WorkerDrained(old[0]))
    paper.die(old[0], 0)
    found = paper.tell(events.RecycleDue(old[1], "it has served enough"))
    assert "worker 1 is to be replaced: it has served enough" in logged(found, "info")
    assert paper.spawned[4].index == 1


def test_recycling_that_fails_is_not_tried_again_at_once() -> None:
    """The worker stays and serves; boots cost the others their processor."""
    paper = Paper(PLAN)
    old = paper.start()
    paper.tell(events.RecycleDue(old[0], "it has served enough"))
    for _ in range(3):
        fail(paper, paper.newest())
        paper.tick(10.0)
    assert "worker 0 stays" in logged(paper.done, "error")
    count = len(paper.spawned)
    paper.tell(events.RecycleDue(old[0], "it has served enough"))
    assert len(paper.spawned) == count
    paper.tick(RECYCLE_PAUSE_SECONDS)
    paper.tell(events.RecycleDue(old[0], "it has served enough"))
    assert len(paper.spawned) == count + 1


def test_a_seat_whose_worker_died_meanwhile_has_the_successor_all_the_same() -> None:
    """One worker in it in the end: the pause is over, or its booting replacement ends."""
    for pause in (0.0, 1.0):
        paper = Paper(PLAN)
        old = paper.start()
        paper.tell(events.DrainAsked("a test", "app", 1, 1))
        successor = paper.newest()
        paper.die(old[1])
        paper.tick(pause)
        found = paper.ready(successor)
        assert paper.worker(1) == successor
        assert told(paper) == ["started", "done"]
        assert len(of(found, effects.Terminate)) == (1 if pause else 0)
        paper.tick(20.0)
        assert paper.states() == [State.READY] * 3
        assert paper.leaving() == []


def test_one_hangup_is_one_reload_whoever_gets_it() -> None:
    """`pkill -HUP` signals guardian and supervisor, and the guardian forwards; two from one side are two."""
    paper = Paper(PLAN)
    paper.start()
    paper.tell(events.ReloadAsked("SIGHUP", forwarded=False))
    paper.tell(events.ReloadAsked("SIGHUP", forwarded=True))
    assert not [text for text in logged(paper.done).splitlines() if "queued" in text]
    paper.tell(events.ReloadAsked("SIGHUP", forwarded=True))
    assert "reload is queued" in logged(paper.done)
