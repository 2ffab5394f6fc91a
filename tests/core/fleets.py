"""A fleet in a test's hands: performs effects on paper and shows what a real one would have done."""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.core import effects, events
from supervisor.core.backoff import BackoffPolicy
from supervisor.core.effects import Effect
from supervisor.core.events import Event, Worker
from supervisor.core.fleet import Fleet
from supervisor.core.server import ServerPlan
from supervisor.core.worker_state import State


class Paper:
    """A fleet, a clock and the processes that it would have."""

    def __init__(self, *plans: ServerPlan, policy: BackoffPolicy | None = None) -> None:
        self.fleet = Fleet(plans, policy)
        self.now = 100.0
        self.done: list[Effect] = []
        self.alive: dict[Worker, int] = {}
        self.unreaped: set[Worker] = set()
        self.spawn_fails = False
        self.spawned: list[effects.Spawn] = []
        self.next_plans: dict[str, ServerPlan] | None = {plan.name: plan for plan in plans}
        self._incarnation = 0

    def tell(self, event: Event) -> list[Effect]:
        """Handle one event; spawns succeed at once, kills take effect at once."""
        new = self.fleet.handle(event, self.now)
        everything = list(new)
        for effect in new:
            self.done.append(effect)
            everything += self.perform(effect)
        return everything

    def perform(self, effect: Effect) -> list[Effect]:
        """What follows from one effect."""
        match effect:
            case effects.Spawn(server=server, index=index, key=key):
                self.spawned.append(effect)
                if self.spawn_fails:
                    return self.tell(events.SpawnFailed(server, index, "no process", key))
                return self.tell(events.Spawned(*self.fork(server, index), key))
            case effects.ReadConfig():
                if self.next_plans is None:
                    return self.tell(events.ConfigRefused("servers.app.bind: found another"))
                return self.tell(events.ConfigRead(self.next_plans))
            case effects.Kill(worker=worker) if worker in self.alive:
                return self.die(worker, -9)
            case effects.KillAll():
                return [each for worker in list(self.alive) for each in self.die(worker, -9)]
            case _:
                return []

    def fork(self, server: str, index: int) -> tuple[Worker, int]:
        """A new process."""
        self._incarnation += 1
        worker = Worker(server, index, self._incarnation)
        self.alive[worker] = 1000 + self._incarnation
        self.unreaped.add(worker)
        return worker, self.alive[worker]

    def die(self, worker: Worker, status: int = -9, sessions: int = 0, *, reap: bool = True) -> list[Effect]:
        """A process exits, and is reaped."""
        del self.alive[worker]
        found = self.tell(events.WorkerDied(worker, status, f"status {status}", sessions))
        return found + self.reap(worker) if reap else found

    def reap(self, worker: Worker) -> list[Effect]:
        """Nothing is left of it."""
        self.unreaped.discard(worker)
        return self.tell(events.WorkerReaped(worker))

    def tick(self, seconds: float = 0.0) -> list[Effect]:
        """Let time pass."""
        self.now += seconds
        return self.tell(events.Tick())

    def start(self, *, ready: bool = True) -> list[Worker]:
        """Fill the seats."""
        self.tell(events.Started())
        workers = list(self.alive)
        for worker in workers if ready else ():
            self.tell(events.WorkerReady(worker))
        return workers

    def worker(self, index: int, server: str = "app") -> Worker:
        """Who sits there."""
        return self.fleet.servers[server].seats[index].worker

    def ready(self, worker: Worker) -> list[Effect]:
        """A worker says that it is ready."""
        return self.tell(events.WorkerReady(worker))

    def newest(self) -> Worker:
        """The worker that was started last."""
        return max(self.alive, key=lambda worker: worker.incarnation)

    def leaving(self, server: str = "app") -> list[tuple[int, State]]:
        """Index and state of the workers that have no place any more."""
        return [(seat.index, seat.state) for seat in self.fleet.servers[server].leaving]

    def states(self, server: str = "app") -> list[State]:
        """Of the seats."""
        return [seat.state for seat in self.fleet.servers[server].seats]


def logged(found: Iterable[Effect], level: str | None = None) -> str:
    """The log lines among effects."""
    return "\n".join(
        effect.text for effect in found if isinstance(effect, effects.Log) and level in (None, effect.level)
    )


def of(found: Iterable[Effect], *kinds: type) -> list[Effect]:
    """The effects of some kinds."""
    return [effect for effect in found if isinstance(effect, kinds)]
