"""One server's seats: who is started when, what a death means, and how the server stops.

Nothing here waits and nothing reads a clock: `now` is passed in, monotonic seconds. Workers that are being replaced are
in `rollout`, those that have given their place up in `leaving`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count

from supervisor.core import events
from supervisor.core.backoff import BackoffPolicy
from supervisor.core.boot_failures import BootFailures, cause
from supervisor.core.effects import CloseListeners, Effect, Level, Send, ShowSeat, Spawn, Terminate
from supervisor.core.leaving import Leaving, end_boot, finish, kill
from supervisor.core.messages import Share, StopAccepting
from supervisor.core.plan import ServerPlan
from supervisor.core.rollout import Rollout
from supervisor.core.seat import Seat
from supervisor.core.stopping import Stop
from supervisor.core.worker_state import State, Step

__all__ = ["Server", "ServerPlan"]


class Server:
    """A server's seats.

    gave_up       its app failed to boot too often before any worker was ever ready
    shared        workers claim their sessions in the table; once they do, they always do
    share_error   why the lone worker could not hand its sessions over, when it was last asked
    """

    def __init__(self, plan: ServerPlan, policy: BackoffPolicy) -> None:
        self.plan = plan
        self.policy = policy
        self.was_ready = False
        self.gave_up = False
        self.shared = plan.workers > 1
        self.share_error = ""
        self.leaving = Leaving(plan)
        self.rollout: Rollout | None = None
        self.failures = BootFailures()
        self._keys = count(1)
        self._stop: Stop | None = None
        self.seats = [self.new_seat(index) for index in range(plan.workers)]

    def __repr__(self) -> str:
        states = [seat.state.value for seat in self.seats]
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        leaving = f", {len(self.leaving)} leaving" if len(self.leaving) else ""
        return f"<Server {self.plan.name}: {counts}{leaving}{', stopping' if self.stopping else ''}>"

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stop is not None

    @property
    def everyone(self) -> list[Seat]:
        """All seats: those that have a place, the one that shall have one, and those that have none any more."""
        incoming = self.rollout.incoming if self.rollout is not None else None
        return [*self.seats, *([] if incoming is None else [incoming]), *self.leaving]

    @property
    def ended(self) -> bool:
        """Whether nothing runs here and nothing will."""
        return self.stopping and not any(seat.live or seat.state is State.STARTING for seat in self.everyone)

    @property
    def ready_to_share(self) -> bool:
        """Whether a further worker may be started: the sessions of all that are there can be found."""
        there = (seat for seat in self.seats if seat.live or seat.state is State.STARTING)
        return self.shared and all(seat.shared for seat in there)

    def find(self, worker: events.Worker) -> Seat | None:
        """Where that very incarnation is; None when it is gone."""
        return next((seat for seat in self.everyone if seat.holds(worker)), None)

    def next_timer(self) -> float | None:
        """When `tick` has something to do, at the earliest."""
        times = [seat.due for seat in self.everyone if seat.due is not None]
        if self.rollout is not None and self.rollout.due is not None:
            times.append(self.rollout.due)
        if self._stop is not None and (due := self._stop.next_timer()) is not None:
            times.append(due)
        return min(times, default=None)

    def start(self) -> list[Effect]:
        """Fill every seat."""
        return [effect for seat in self.seats for effect in self.start_seat(seat)]

    def tick(self, now: float) -> list[Effect]:
        """Do what is due."""
        effects: list[Effect] = []
        for seat in self.everyone:
            if seat.due is None or seat.due > now:
                continue
            if seat.state is State.BACKOFF:
                effects += self.start_seat(seat)
            elif seat.state is State.BOOTING:
                effects += kill(seat, f"was not ready within boot_seconds ({self.plan.boot_seconds:g} s)")
            elif seat.leaving:
                effects += self.leaving.tick(seat, now)
            else:
                effects += kill(seat, self._too_late)
        if self.rollout is not None and self.rollout.due is not None and self.rollout.due <= now:
            effects += self.rollout.start()
        return effects + self._go_on_stopping(now)

    # What the shell reports about one seat

    def spawned(self, event: events.Spawned, now: float) -> list[Effect]:
        """A process runs; it has boot_seconds from here."""
        seat = self._starting(event.worker.index, event.key)
        effects = seat.seat_worker(event.worker, event.pid)
        effects.append(seat.log("info", f"worker {seat.index} started, pid {seat.pid}, incarnation {seat.incarnation}"))
        if self._stop is not None:
            effects += end_boot(seat, max(self._stop.kill_at - now, 0.0))
            return effects + kill(seat, self._too_late) if self._stop.killed else effects
        if seat.leaving:
            return effects + self.leaving.spawned(seat, now)
        seat.due = now + self.plan.boot_seconds
        return effects

    def spawn_failed(self, event: events.SpawnFailed, now: float) -> list[Effect]:
        """No process could be had: as bad as a boot that failed."""
        seat = self._starting(event.index, event.key)
        effects = seat.move(Step.SPAWN_FAILED)
        self.leaving.forget(seat)
        if self._stop is not None or seat.leaving:
            return effects
        return effects + self._after_failed_boot(seat, f"could not be started: {event.reason}", now)

    def ready(self, seat: Seat, now: float) -> list[Effect]:
        """A worker serves."""
        effects = seat.move(Step.SAID_READY)
        if seat.state is not State.READY:
            return effects
        seat.ready_at, seat.boot_failures = now, 0
        self.was_ready = True
        self.failures.forget()
        effects.append(seat.log("info", f"worker {seat.index} is ready, pid {seat.pid}"))
        if self.rollout is not None and seat is self.rollout.incoming:
            return effects + self.rollout.ready(now)
        return effects + self._ask_to_share(seat)

    def boot_failed(self, seat: Seat, event: events.WorkerBootFailed) -> list[Effect]:
        """Remember why; its death follows, and says the rest."""
        effects = seat.move(Step.SAID_BOOT_FAILED)
        seat.traceback = event.traceback
        return effects

    def quiet(self, seat: Seat, now: float) -> list[Effect]:
        """A worker has no public connection left, and so no relay out in flight."""
        effects = seat.move(Step.SAID_QUIET)
        seat.quiet = True
        if self._stop is None and seat.state is State.STOPPING and not seat.finishing:
            return effects + self._stops_by_itself(seat, now)
        return effects + self._go_on_stopping(now)

    def drained(self, seat: Seat, now: float) -> list[Effect]:
        """A worker's last session has ended."""
        seat.move(Step.SAID_DRAINED)
        return self.leaving.drained(seat, now) if seat.state is State.DRAINING else []

    def told_to_share(self, seat: Seat, event: events.WorkerShared) -> list[Effect]:
        """A worker has handed its sessions over to the table, or could not."""
        effects = seat.move(Step.SAID_SHARED)
        seat.sharing = False
        if event.error:
            self.share_error = event.error
        else:
            seat.shared = True
        return effects

    def died(self, seat: Seat, event: events.WorkerDied, now: float) -> list[Effect]:
        """A worker is gone: say what it means, and plan what follows."""
        state, ready_at, how = seat.state, seat.ready_at, seat.condemned or event.how
        if self._stop is None and seat.leaving:
            return self.leaving.died(seat, event)
        effects = seat.move(Step.DIED)
        if self._stop is not None:
            expected = event.status == 0 or (state is State.STOPPING and seat.ready_at is None)
            line = seat.log("info" if expected else "warning", f"worker {seat.index} ended: {event.how}")
            return [*effects, line, *self._go_on_stopping(now)]
        if state is State.BOOTING or (self.rollout is not None and seat is self.rollout.incoming):
            return effects + self._after_failed_boot(seat, how, now)
        if ready_at is not None and self.policy.ran_well(now - ready_at):
            seat.deaths_in_a_row = 0
        lost = f"; it had {event.sessions} open sessions, which are gone" if event.sessions else ""
        text = f"worker {seat.index} is gone, pid {seat.pid}: {how}{lost}"
        return effects + self._wait(seat, "warning", text, now)

    # What is wanted of it

    def share(self) -> list[Effect]:
        """There will be several workers: a lone one hands its sessions over to the table first."""
        self.shared, self.share_error = True, ""
        return [effect for seat in self.seats for effect in self._ask_to_share(seat)]

    def roll(self, indices: Iterable[int], reason: str, *, canary: bool = False) -> list[Effect]:
        """Begin to replace the workers of some seats, one after the other."""
        self.rollout = Rollout(self, indices, reason, canary=canary)
        return self.rollout.start()

    def resize(self, workers: int, reason: str, now: float) -> list[Effect]:
        """Have so many seats from here on; whoever loses his place drains."""
        effects: list[Effect] = []
        for seat in self.seats[workers:]:
            effects += self.leaving.add(seat, reason, now)
            effects.append(ShowSeat(seat.server, seat.index, State.EMPTY, 0, 0))
        del self.seats[workers:]
        for index in range(len(self.seats), workers):
            self.seats.append(self.new_seat(index))
            effects += self.start_seat(self.seats[-1])
        self.adopt(replace(self.plan, workers=workers))
        return effects

    def adopt(self, plan: ServerPlan) -> None:
        """Another plan is in force from here on."""
        self.plan = self.leaving.plan = plan

    def stop(self, now: float) -> list[Effect]:
        """End all workers in order: accept nothing new, end what is there, shut down, and at the deadline be killed."""
        graceful = self.plan.graceful_seconds
        effects = self.rollout.give_up("the service stops", now) if self.rollout is not None else []
        self._stop = Stop(graceful, now)
        for seat in self.everyone:
            if seat.state is State.BACKOFF:
                effects += seat.move(Step.CANCEL)
            elif seat.state is State.BOOTING:
                effects += end_boot(seat, graceful)
            elif seat.state in (State.READY, State.DRAINING):
                effects += [*seat.move(Step.STOP), Send(seat.worker, StopAccepting())]
            seat.due = None
        return [*effects, CloseListeners(self.plan.name), *self._go_on_stopping(now)]

    def kill(self, now: float) -> list[Effect]:
        """Stop without any of this: somebody kills all processes."""
        effects = self.stop(now) if self._stop is None else []
        assert self._stop is not None
        self._stop.skip()
        return [effect for effect in effects if not isinstance(effect, Send | Terminate)]

    def new_seat(self, index: int) -> Seat:
        """A seat of its own, for that index."""
        return Seat(self.plan.name, index, key=next(self._keys))

    def start_seat(self, seat: Seat, *, candidate: bool = False) -> list[Effect]:
        """Ask for a worker in it."""
        if seat.incarnation:
            seat.restarts += 1
        seat.shared = self.shared
        spawn = Spawn(seat.server, seat.index, seat.key, candidate=candidate, shared=self.shared)
        return [*seat.move(Step.START), spawn]

    # Decisions

    @property
    def _too_late(self) -> str:
        return f"did not end within graceful_seconds ({self.plan.graceful_seconds:g} s)"

    def _starting(self, index: int, key: int) -> Seat:
        """The seat that has asked for a process."""
        return next((seat for seat in self.everyone if seat.key == key), None) or self.seats[index]

    def _ask_to_share(self, seat: Seat) -> list[Effect]:
        if not self.shared or seat.shared or seat.sharing or seat.state is not State.READY:
            return []
        seat.sharing = True
        return [Send(seat.worker, Share())]

    def _stops_by_itself(self, seat: Seat, now: float) -> list[Effect]:
        """A ready worker that turned quiet untold got a SIGTERM of its own: see that it ends, then replace it."""
        seconds = self.plan.graceful_seconds
        seat.due = now + seconds
        text = f"worker {seat.index} stops by itself, pid {seat.pid}: somebody told it to"
        return [seat.log("warning", text), finish(seat, seconds)]

    def _after_failed_boot(self, seat: Seat, how: str, now: float) -> list[Effect]:
        if self.rollout is not None and seat is self.rollout.incoming:
            return self.rollout.failed_boot(seat, how, now)
        seat.boot_failures += 1
        effects = self.failures.show(seat)
        reason, tries = cause(seat, how), self.plan.boot_tries
        if self.was_ready:
            return effects + self._wait(seat, "error", f"worker {seat.index} failed to boot: {reason}", now)
        text = f"worker {seat.index} failed to boot (try {seat.boot_failures} of {tries}): {reason}"
        if seat.boot_failures < tries:
            return effects + self._wait(seat, "error", text, now)
        self.gave_up = True
        return [*effects, seat.log("error", text), *seat.move(Step.GIVE_UP)]

    def _wait(self, seat: Seat, level: Level, text: str, now: float) -> list[Effect]:
        """Plan the next worker of a seat."""
        seat.deaths_in_a_row += 1
        delay = self.policy.delay_seconds(seat.deaths_in_a_row, was_ready=seat.ready_at is not None)
        effects = seat.move(Step.WAIT)
        seat.due = now + delay
        line = f"{text}; the next one starts in {delay:g} s"
        return [seat.log(level, line), *effects]

    def _go_on_stopping(self, now: float) -> list[Effect]:
        return [] if self._stop is None else self._stop.advance(self.everyone, self._too_late, now)
