"""What holds for the fleet whatever happens, in whatever order."""

from __future__ import annotations

from dataclasses import replace

from core.fleets import logged
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from supervisor.core import effects, events
from supervisor.core.effects import Effect
from supervisor.core.events import Event, Worker
from supervisor.core.fleet import KILL_PATIENCE_SECONDS, Fleet
from supervisor.core.messages import ToWorker
from supervisor.core.seat import Seat
from supervisor.core.server import ServerPlan
from supervisor.core.worker_state import LIVE, IllegalStep, State

PLANS = (
    ServerPlan("a", 3, boot_tries=2, boot_seconds=5.0, graceful_seconds=4.0),
    ServerPlan("b", 1, boot_tries=3, boot_seconds=2.0, graceful_seconds=1.0),
)
SAID = events.WorkerReady | events.WorkerQuiet | events.WorkerDrained | events.WorkerBootFailed | events.WorkerShared
KINDS = ["ready", "ready", "quiet", "drained", "failed", "held", "stalled", "shared", "not shared", "cut", "due"]
STATUS = st.sampled_from([0, 1, 3, -9, -15])


class Machine(RuleBasedStateMachine):
    """Processes that boot, fail, hang and die as they like, under a fleet that has to keep them in order."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet(PLANS)
        self.now = 0.0
        self.asked: list[effects.Spawn] = []
        self.config: list[Event] = []
        self.next_plans: dict[str, ServerPlan] | None = {plan.name: plan for plan in PLANS}
        self.alive: set[Worker] = set()
        self.zombies: set[Worker] = set()
        self.doomed: set[Worker] = set()
        self.stop_at: float | None = None
        self.lost_patience = False
        self.incarnation = 0
        self.tickets = 0
        self.answers: dict[int, str] = {}
        self.told: dict[Worker, list[ToWorker]] = {}

    def tell(self, event: Event) -> None:
        """Handle an event and note what it wants."""
        try:
            found = self.fleet.handle(event, self.now)
        except IllegalStep:
            assert isinstance(event, SAID)
            return
        for effect in found:
            self.note(effect)
        while self.config:
            self.tell(self.config.pop())
        if effects.Exit(1) in found and "still there" in logged(found, "error"):
            assert self.stopped_for() >= KILL_PATIENCE_SECONDS, "patience was lost too early"
            self.lost_patience = True
        elif any(isinstance(effect, effects.Exit) for effect in found):
            assert not self.alive, "the end while a process lives"
            assert not self.zombies, "the end while a process is not reaped"

    def note(self, effect: Effect) -> None:
        """What a real loop would do about it."""
        match effect:
            case effects.Spawn():
                assert not self.fleet.stopping, "a worker is started while the service stops"
                self.asked.append(effect)
            case effects.ReadConfig():
                plans = self.next_plans
                self.config.append(events.ConfigRefused("no") if plans is None else events.ConfigRead(plans))
            case effects.Send(worker=worker, message=message):
                self.told.setdefault(worker, []).append(message)
            case effects.Tell(ticket=ticket, outcome=outcome):
                assert self.answers.get(ticket) not in ("done", "failed", "refused"), "answered twice"
                self.answers[ticket] = outcome
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
        asked = data.draw(st.sampled_from(self.asked))
        if not works:
            self.asked = [one for one in self.asked if one is not asked]
            self.tell(events.SpawnFailed(asked.server, asked.index, "no process", asked.key))
            return
        self.fork(asked)

    def fork(self, asked: effects.Spawn) -> None:
        """The process that was asked for."""
        self.asked = [one for one in self.asked if one is not asked]
        self.incarnation += 1
        worker = Worker(asked.server, asked.index, self.incarnation)
        self.alive.add(worker)
        self.tell(events.Spawned(worker, 1000 + self.incarnation, asked.key))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), kind=st.sampled_from(KINDS))
    def say(self, data: st.DataObject, kind: str) -> None:
        """A worker says something, fitting or not."""
        worker = data.draw(st.sampled_from(sorted(self.alive, key=lambda one: one.incarnation)))
        said: dict[str, Event] = {
            "ready": events.WorkerReady(worker),
            "quiet": events.WorkerQuiet(worker),
            "drained": events.WorkerDrained(worker),
            "failed": events.WorkerBootFailed(worker, "Traceback"),
            "held": events.StripeHeld(worker, 60.0),
            "stalled": events.WorkerStalled(worker, 60.0, 3, "stacks"),
            "shared": events.WorkerShared(worker),
            "not shared": events.WorkerShared(worker, "TableFull"),
            "cut": events.WorkerCut(worker, 3, ("a", "b")),
            "due": events.RecycleDue(worker, "it has served enough"),
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

    @rule(
        kind=st.sampled_from(["reload", "force", "scale", "more", "less", "drain"]),
        server=st.sampled_from(["a", "b"]),
        number=st.integers(0, 5),
    )
    def change(self, kind: str, server: str, number: int) -> None:
        """An operator wants something changed."""
        self.tickets += 1
        asked: dict[str, Event] = {
            "reload": events.ReloadAsked("SIGHUP", self.tickets),
            "force": events.ReloadAsked("the command", self.tickets, force=True),
            "scale": events.ScaleAsked("the command", server, number, ticket=self.tickets),
            "more": events.ScaleAsked("SIGTTIN", step=1),
            "less": events.ScaleAsked("SIGTTOU", step=-1),
            "drain": events.DrainAsked("the command", server, number, self.tickets),
        }
        if self.fleet.exit_status is None and kind not in ("more", "less"):
            self.answers[self.tickets] = "none"
        self.tell(asked[kind])

    @rule(workers=st.one_of(st.none(), st.integers(1, 4)))
    def edit(self, workers: int | None) -> None:
        """Somebody edits the config; None: into something that cannot be."""
        self.next_plans = None if workers is None else {plan.name: replace(plan, workers=workers) for plan in PLANS}

    def stopped_for(self) -> float:
        """Seconds since a stop was asked for; no matter how many when a hopeless app brought it about."""
        return KILL_PATIENCE_SECONDS if self.stop_at is None else self.now - self.stop_at

    @invariant()
    def seats_hold_one_worker_each(self) -> None:
        """Every process is in one seat; a server has one seat for each index, and at most one successor beside."""
        if self.fleet.exit_status is not None:
            return
        held = [seat for server in self.fleet.servers.values() for seat in server.everyone if seat.live]
        assert len(held) == len({seat.worker for seat in held})
        assert {seat.worker for seat in held} == self.alive
        starting = [
            (s.server, s.key) for one in self.fleet.servers.values() for s in one.everyone if s.state is State.STARTING
        ]
        assert sorted(starting) == sorted((asked.server, asked.key) for asked in self.asked)
        for server in self.fleet.servers.values():
            assert [seat.index for seat in server.seats] == list(range(server.plan.workers))
            assert len(server.everyone) <= len(server.seats) + len(server.leaving) + 1

    @invariant()
    def nobody_has_a_sibling_before_he_shares(self) -> None:
        """A second worker is started only when the sessions of the first can be found."""
        if self.fleet.exit_status is not None or self.fleet.stopping:
            return
        for server in self.fleet.servers.values():
            running = [seat for seat in server.everyone if seat.live and not seat.leaving]
            assert len(running) < 2 or all(seat.shared for seat in running)

    @invariant()
    def who_asked_is_answered(self) -> None:
        """At once: that it has begun, that it waits, or what has become of it."""
        assert "none" not in self.answers.values()

    @invariant()
    def a_timer_is_set_for_whatever_waits(self) -> None:
        """A seat in a pause, a boot and a stop have a time at which they go on."""
        due = self.fleet.next_timer(self.now)
        assert due is None or due >= self.now
        seats = [seat for server in self.fleet.servers.values() for seat in server.everyone]
        waits = any(seat.state is State.BACKOFF for seat in seats)
        boots = any(seat.state is State.BOOTING and seat.condemned is None for seat in seats)
        drains = any(seat.state is State.DRAINING and seat.condemned is None for seat in seats)
        if self.fleet.exit_status is None and (waits or boots or drains or self.fleet.stopping):
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
                self.fork(self.asked[0])
            for worker in list(self.doomed):
                self.end(worker, -9)
            for worker in list(self.zombies):
                self.zombies.discard(worker)
                self.tell(events.WorkerReaped(worker))
            if (due := self.fleet.next_timer(self.now)) is not None:
                self.now = due
                self.tell(events.Tick())
        seats = [seat for server in self.fleet.servers.values() for seat in server.everyone]
        assert set(self.answers.values()) <= {"done", "failed", "refused"}, self.answers
        assert self.lost_patience or not any(seat.state in LIVE for seat in seats)


Machine.TestCase.settings = settings(
    max_examples=80, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
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
    max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestStubbornProperties = Stubborn.TestCase


class Peaceful(Machine):
    """The same, and then all goes well: every change comes to its end, and nothing drains for ever."""

    def teardown(self) -> None:
        """Workers do what they are told, and boot; killed ones die."""
        if self.fleet.stopping:
            super().teardown()
            return
        for _ in range(200):
            self.now += 1.0
            self.tell(events.Tick())
            while self.asked:
                self.fork(self.asked[0])
            for worker in list(self.doomed):
                self.end(worker, -9)
            for server in list(self.fleet.servers.values()):
                for seat in list(server.everyone):
                    self.obey(seat)
            if self.fleet.stopping:
                break
        if not self.fleet.stopping:
            assert set(self.answers.values()) <= {"done", "failed", "refused"}, (self.answers, self.fleet._changing)
            for server in self.fleet.servers.values():
                assert [seat.state for seat in server.seats] == [State.READY] * server.plan.workers
                assert not len(server.leaving), server
        super().teardown()

    def obey(self, seat: Seat) -> None:
        """What a worker does that is well."""
        if seat.state is State.BOOTING and seat.condemned is None:
            self.tell(events.WorkerReady(seat.worker))
        elif seat.state is State.READY and seat.sharing:
            self.tell(events.WorkerShared(seat.worker))
        elif seat.state is State.DRAINING:
            self.tell(events.WorkerDrained(seat.worker))
        elif seat.state is State.STOPPING and seat.worker in self.alive:
            self.end(seat.worker, 0)


Peaceful.TestCase.settings = settings(
    max_examples=50, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestPeacefulProperties = Peaceful.TestCase
