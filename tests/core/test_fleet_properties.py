"""What holds for the fleet whatever happens, in whatever order."""

from __future__ import annotations

from core.fleets import logged
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from supervisor.core import effects, events
from supervisor.core.effects import Effect
from supervisor.core.events import Event, Worker
from supervisor.core.fleet import KILL_PATIENCE_SECONDS, Fleet
from supervisor.core.server import ServerPlan
from supervisor.core.worker_state import LIVE, IllegalStep, State

PLANS = (
    ServerPlan("a", 3, boot_tries=2, boot_seconds=5.0, graceful_seconds=4.0),
    ServerPlan("b", 1, boot_tries=3, boot_seconds=2.0, graceful_seconds=1.0),
)
STATUS = st.sampled_from([0, 1, 3, -9, -15])


class Machine(RuleBasedStateMachine):
    """Processes that boot, fail, hang and die as they like, under a fleet that has to keep them in order."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet(PLANS)
        self.now = 0.0
        self.asked: list[tuple[str, int]] = []
        self.alive: set[Worker] = set()
        self.zombies: set[Worker] = set()
        self.doomed: set[Worker] = set()
        self.stop_at: float | None = None
        self.lost_patience = False
        self.incarnation = 0

    def tell(self, event: Event) -> None:
        """Handle an event and note what it wants."""
        try:
            found = self.fleet.handle(event, self.now)
        except IllegalStep:
            assert isinstance(
                event, events.WorkerReady | events.WorkerQuiet | events.WorkerDrained | events.WorkerBootFailed
            )
            return
        for effect in found:
            self.note(effect)
        if effects.Exit(1) in found and "still there" in logged(found, "error"):
            assert self.stopped_for() >= KILL_PATIENCE_SECONDS, "patience was lost too early"
            self.lost_patience = True
        elif any(isinstance(effect, effects.Exit) for effect in found):
            assert not self.alive, "the end while a process lives"
            assert not self.zombies, "the end while a process is not reaped"

    def note(self, effect: Effect) -> None:
        """What a real loop would do about it."""
        match effect:
            case effects.Spawn(server=server, index=index):
                assert not self.fleet.stopping, "a worker is started while the service stops"
                self.asked.append((server, index))
            case effects.Kill(worker=worker):
                assert worker in self.alive, "a process is killed that is not there"
                self.doomed.add(worker)
            case effects.KillAll():
                self.doomed |= self.alive
            case effects.ShowRow(worker=worker):
                assert worker not in self.zombies, "a dead worker's row is written"

    @initialize()
    def start(self) -> None:
        """The service begins."""
        self.tell(events.Started())

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), works=st.booleans())
    def spawn(self, data: st.DataObject, works: bool) -> None:
        """An asked-for process is there, or is not to be had."""
        server, index = data.draw(st.sampled_from(self.asked))
        self.asked.remove((server, index))
        if not works:
            self.tell(events.SpawnFailed(server, index, "no process"))
            return
        self.incarnation += 1
        worker = Worker(server, index, self.incarnation)
        self.alive.add(worker)
        self.tell(events.Spawned(worker, 1000 + self.incarnation))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), kind=st.sampled_from(["ready", "quiet", "drained", "failed", "held"]))
    def say(self, data: st.DataObject, kind: str) -> None:
        """A worker says something, fitting or not."""
        worker = data.draw(st.sampled_from(sorted(self.alive, key=lambda one: one.incarnation)))
        said: dict[str, Event] = {
            "ready": events.WorkerReady(worker),
            "quiet": events.WorkerQuiet(worker),
            "drained": events.WorkerDrained(worker),
            "failed": events.WorkerBootFailed(worker, "Traceback"),
            "held": events.StripeHeld(worker, 60.0),
        }
        self.tell(said[kind])

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), status=STATUS)
    def die(self, data: st.DataObject, status: int) -> None:
        """A worker exits."""
        self.end(data.draw(st.sampled_from(sorted(self.alive, key=lambda one: one.incarnation))), status)

    def end(self, worker: Worker, status: int) -> None:
        """A worker is a zombie now."""
        self.alive.discard(worker)
        self.doomed.discard(worker)
        self.zombies.add(worker)
        self.tell(events.WorkerDied(worker, status, f"status {status}"))

    @precondition(lambda self: self.zombies)
    @rule(data=st.data())
    def reap(self, data: st.DataObject) -> None:
        """A zombie is gone."""
        worker = data.draw(st.sampled_from(sorted(self.zombies, key=lambda one: one.incarnation)))
        self.zombies.discard(worker)
        self.tell(events.WorkerReaped(worker))

    @rule(seconds=st.sampled_from([0.0, 0.1, 1.0, 7.0]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.now += seconds
        self.tell(events.Tick())

    @rule(
        event=st.sampled_from(
            [
                events.StopSignal("SIGTERM"),
                events.StopSignal("SIGINT", forwarded=True),
                events.QuitSignal(),
                events.StopCommand(),
                events.TableBroken("a", "2 tokens"),
            ]
        )
    )
    def ask(self, event: Event) -> None:
        """An operator wants something."""
        if self.stop_at is None:
            self.stop_at = self.now
        self.tell(event)

    def stopped_for(self) -> float:
        """Seconds since a stop was asked for; no matter how many when a hopeless app brought it about."""
        return KILL_PATIENCE_SECONDS if self.stop_at is None else self.now - self.stop_at

    @invariant()
    def seats_hold_one_worker_each(self) -> None:
        """No two live processes in one seat, none without a seat, never more than there are seats."""
        places = [(worker.server, worker.index) for worker in self.alive] + self.asked
        assert len(places) == len(set(places))
        for plan in PLANS:
            assert sum(server == plan.name for server, _ in places) <= plan.workers
        if self.fleet.exit_status is None:
            held = {seat.worker for server in self.fleet.servers.values() for seat in server.seats if seat.live}
            assert held == self.alive

    @invariant()
    def a_timer_is_set_for_whatever_waits(self) -> None:
        """A seat in a pause, a boot and a stop have a time at which they go on."""
        due = self.fleet.next_timer(self.now)
        assert due is None or due >= self.now
        seats = [seat for server in self.fleet.servers.values() for seat in server.seats]
        waits = any(seat.state is State.BACKOFF for seat in seats)
        boots = any(seat.state is State.BOOTING and seat.condemned is None for seat in seats)
        if self.fleet.exit_status is None and (waits or boots or self.fleet.stopping):
            assert due is not None

    def teardown(self) -> None:
        """After a stop the service ends, when killed processes die and zombies are reaped, whatever else happens."""
        if self.fleet.exit_status is None and not self.fleet.stopping:
            self.tell(events.StopSignal("SIGTERM"))
        steps = 0
        while self.fleet.exit_status is None:
            steps += 1
            assert steps < 100, f"no end: {self.fleet}"
            while self.asked:
                self.incarnation += 1
                worker = Worker(*self.asked.pop(), self.incarnation)
                self.alive.add(worker)
                self.tell(events.Spawned(worker, 1000 + self.incarnation))
            for worker in list(self.doomed):
                self.end(worker, -9)
            for worker in list(self.zombies):
                self.zombies.discard(worker)
                self.tell(events.WorkerReaped(worker))
            if (due := self.fleet.next_timer(self.now)) is not None:
                self.now = due
                self.tell(events.Tick())
        seats = [seat for server in self.fleet.servers.values() for seat in server.seats]
        assert self.lost_patience or not any(seat.state in LIVE for seat in seats)


Machine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
TestFleetProperties = Machine.TestCase


class Stubborn(Machine):
    """The same, with processes that never die: the service ends all the same."""

    def teardown(self) -> None:
        """By patience alone."""
        if self.fleet.exit_status is not None:
            return
        if not self.fleet.stopping:
            self.tell(events.StopSignal("SIGTERM"))
        longest = max(plan.graceful_seconds for plan in PLANS) + KILL_PATIENCE_SECONDS
        self.now += longest
        self.fleet.handle(events.Tick(), self.now)
        assert self.fleet.exit_status is not None


Stubborn.TestCase.settings = settings(
    max_examples=50, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestStubbornProperties = Stubborn.TestCase
