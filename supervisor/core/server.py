"""One server's seats: who is started when, what a death means, and how the server stops.

Nothing here waits and nothing reads a clock: `now` is passed in, monotonic seconds. A drain of single workers, a reload
and a change of scale belong here, beside `stop`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from supervisor.core import events
from supervisor.core.backoff import BackoffPolicy
from supervisor.core.effects import CloseListeners, Effect, Kill, Level, Send, Spawn, Terminate
from supervisor.core.messages import Finish, StopAccepting
from supervisor.core.seat import Seat
from supervisor.core.worker_state import State, Step


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """What the fleet has to know of a server's config; durations in seconds."""

    name: str
    workers: int
    boot_tries: int = 5
    boot_seconds: float = 120.0
    graceful_seconds: float = 30.0


@dataclass(slots=True)
class _Stop:
    """A stop under way. Before `finish_at` the workers end what they have; at `kill_at` what still runs is killed."""

    finish_at: float
    kill_at: float
    finishing: bool = False
    killed: bool = False


class Server:
    """A server's seats.

    gave_up   its app failed to boot too often before any worker was ever ready
    """

    def __init__(self, plan: ServerPlan, policy: BackoffPolicy) -> None:
        self.plan = plan
        self.policy = policy
        self.seats = [Seat(plan.name, index) for index in range(plan.workers)]
        self.was_ready = False
        self.gave_up = False
        self._stop: _Stop | None = None
        self._shown: set[str] = set()

    def __repr__(self) -> str:
        states = [seat.state.value for seat in self.seats]
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        return f"<Server {self.plan.name}: {counts}{', stopping' if self.stopping else ''}>"

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stop is not None

    @property
    def ended(self) -> bool:
        """Whether nothing runs here and nothing will."""
        return self.stopping and not any(seat.live or seat.state is State.STARTING for seat in self.seats)

    @property
    def _too_late(self) -> str:
        return f"did not end within graceful_seconds ({self.plan.graceful_seconds:g} s)"

    def next_timer(self) -> float | None:
        """When `tick` has something to do, at the earliest."""
        times = [seat.due for seat in self.seats if seat.due is not None]
        if self._stop is not None and not self._stop.finishing:
            times.append(self._stop.finish_at)
        if self._stop is not None and not self._stop.killed:
            times.append(self._stop.kill_at)
        return min(times, default=None)

    def start(self) -> list[Effect]:
        """Fill every seat."""
        return [effect for seat in self.seats for effect in self._start_seat(seat)]

    def tick(self, now: float) -> list[Effect]:
        """Do what is due."""
        effects: list[Effect] = []
        for seat in self.seats:
            if seat.due is None or seat.due > now:
                continue
            if seat.state is State.BACKOFF:
                effects += self._start_seat(seat)
            elif seat.state is State.BOOTING:
                reason = f"was not ready within boot_seconds ({self.plan.boot_seconds:g} s)"
                effects += self._kill(seat, reason)
            else:
                effects += self._kill(seat, self._too_late)
        return effects + self._go_on_stopping(now)

    # What the shell reports about one seat

    def spawned(self, event: events.Spawned, now: float) -> list[Effect]:
        """A process runs; it has boot_seconds from here."""
        seat = self.seats[event.worker.index]
        effects = seat.seat_worker(event.worker, event.pid)
        effects.append(seat.log("info", f"worker {seat.index} started, pid {seat.pid}, incarnation {seat.incarnation}"))
        if self._stop is not None:
            effects += self._end_boot(seat, max(self._stop.kill_at - now, 0.0))
            return effects + self._kill(seat, self._too_late) if self._stop.killed else effects
        seat.due = now + self.plan.boot_seconds
        return effects

    def spawn_failed(self, event: events.SpawnFailed, now: float) -> list[Effect]:
        """No process could be had: as bad as a boot that failed."""
        seat = self.seats[event.index]
        effects = seat.move(Step.SPAWN_FAILED)
        if self._stop is not None:
            return effects
        return effects + self._after_failed_boot(seat, f"could not be started: {event.reason}", now)

    def ready(self, worker: events.Worker, now: float) -> list[Effect]:
        """A worker serves."""
        seat = self.seats[worker.index]
        effects = seat.move(Step.SAID_READY)
        if seat.state is State.READY:
            seat.ready_at, seat.boot_failures = now, 0
            self.was_ready = True
            self._shown.clear()
            effects.append(seat.log("info", f"worker {seat.index} is ready, pid {seat.pid}"))
        return effects

    def boot_failed(self, event: events.WorkerBootFailed) -> list[Effect]:
        """Remember why; its death follows, and says the rest."""
        seat = self.seats[event.worker.index]
        effects = seat.move(Step.SAID_BOOT_FAILED)
        seat.traceback = event.traceback
        return effects

    def quiet(self, worker: events.Worker, now: float) -> list[Effect]:
        """A worker has no public connection left, and so no relay out in flight."""
        seat = self.seats[worker.index]
        effects = seat.move(Step.SAID_QUIET)
        seat.quiet = True
        if self._stop is None and seat.state is State.STOPPING and not seat.finishing:
            return effects + self._stops_by_itself(seat, now)
        return effects + self._go_on_stopping(now)

    def drained(self, worker: events.Worker) -> list[Effect]:
        """A worker's last session has ended."""
        return self.seats[worker.index].move(Step.SAID_DRAINED)

    def died(self, event: events.WorkerDied, now: float) -> list[Effect]:
        """A worker is gone: say what it means, and plan what follows."""
        seat = self.seats[event.worker.index]
        state, ready_at, how = seat.state, seat.ready_at, seat.condemned or event.how
        effects = seat.move(Step.DIED)
        if self._stop is not None:
            expected = event.status == 0 or (state is State.STOPPING and seat.ready_at is None)
            line = seat.log("info" if expected else "warning", f"worker {seat.index} ended: {event.how}")
            return [*effects, line, *self._go_on_stopping(now)]
        if state is State.BOOTING:
            return effects + self._after_failed_boot(seat, how, now)
        if ready_at is not None and self.policy.ran_well(now - ready_at):
            seat.deaths_in_a_row = 0
        lost = f"; it had {event.sessions} open sessions, which are gone" if event.sessions else ""
        text = f"worker {seat.index} is gone, pid {seat.pid}: {how}{lost}"
        return effects + self._wait(seat, "warning", text, now)

    def condemn(self, worker: events.Worker, reason: str) -> list[Effect]:
        """Kill a worker for a reason that somebody else found."""
        seat = self.seats[worker.index]
        return self._kill(seat, reason) if seat.holds(worker) else []

    def stop(self, now: float) -> list[Effect]:
        """End all workers in order: accept nothing new, end what is there, shut down, and at the deadline be killed."""
        graceful = self.plan.graceful_seconds
        self._stop = _Stop(finish_at=now + graceful - min(1.0, graceful / 5), kill_at=now + graceful)
        effects: list[Effect] = []
        for seat in self.seats:
            if seat.state is State.BACKOFF:
                effects += seat.move(Step.CANCEL)
            elif seat.state is State.BOOTING:
                effects += self._end_boot(seat, graceful)
            elif seat.state in (State.READY, State.DRAINING):
                effects += [*seat.move(Step.STOP), Send(seat.worker, StopAccepting())]
            seat.due = None
        return [*effects, CloseListeners(self.plan.name), *self._go_on_stopping(now)]

    def kill(self, now: float) -> list[Effect]:
        """Stop without any of this: somebody kills all processes."""
        effects = self.stop(now) if self._stop is None else []
        assert self._stop is not None
        self._stop.finishing = self._stop.killed = True
        return [effect for effect in effects if not isinstance(effect, Send | Terminate)]

    # Decisions

    def _start_seat(self, seat: Seat) -> list[Effect]:
        if seat.incarnation:
            seat.restarts += 1
        return [*seat.move(Step.START), Spawn(seat.server, seat.index)]

    def _finish(self, seat: Seat, seconds: float) -> Send:
        seat.finishing = True
        return Send(seat.worker, Finish(seconds))

    def _end_boot(self, seat: Seat, seconds: float) -> list[Effect]:
        """In an import it reads no link and SIGTERM ends it; later the signal and the message mean the same."""
        return [*seat.move(Step.STOP), self._finish(seat, seconds), Terminate(seat.worker)]

    def _stops_by_itself(self, seat: Seat, now: float) -> list[Effect]:
        """A ready worker that turned quiet untold got a SIGTERM of its own: see that it ends, then replace it."""
        seconds = self.plan.graceful_seconds
        seat.due = now + seconds
        text = f"worker {seat.index} stops by itself, pid {seat.pid}: somebody told it to"
        return [seat.log("warning", text), self._finish(seat, seconds)]

    def _kill(self, seat: Seat, reason: str) -> list[Effect]:
        seat.due = None
        if seat.condemned is not None:
            return []
        seat.condemned = f"killed, since it {reason}"
        return [
            seat.log("error", f"killing worker {seat.index}, pid {seat.pid}: it {reason}"),
            Kill(seat.worker, reason),
        ]

    def _after_failed_boot(self, seat: Seat, how: str, now: float) -> list[Effect]:
        seat.boot_failures += 1
        effects: list[Effect] = []
        if seat.traceback is not None and (key := _same_failure(seat.traceback)) not in self._shown:
            self._shown.add(key)
            effects.append(seat.log("error", f"the app failed to boot:\n{seat.traceback.rstrip()}"))
        cause = _last_line(seat.traceback) if seat.traceback else how
        tries = self.plan.boot_tries
        if self.was_ready:
            return effects + self._wait(seat, "error", f"worker {seat.index} failed to boot: {cause}", now)
        text = f"worker {seat.index} failed to boot (try {seat.boot_failures} of {tries}): {cause}"
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
        """The next part of a stop, when its time has come."""
        stop, effects = self._stop, list[Effect]()
        if stop is None:
            return effects
        serving = [seat for seat in self.seats if seat.state is State.STOPPING and not seat.finishing]
        if not stop.finishing and (now >= stop.finish_at or all(seat.quiet for seat in serving)):
            stop.finishing = True
            effects += [self._finish(seat, max(stop.kill_at - now, 0.0)) for seat in serving]
        if not stop.killed and now >= stop.kill_at:
            stop.killed = True
            for seat in self.seats:
                if seat.live:
                    effects += self._kill(seat, self._too_late)
        return effects


def _last_line(traceback: str) -> str:
    return traceback.rstrip().rpartition("\n")[2]


def _same_failure(traceback: str) -> str:
    """The traceback without what differs from process to process: two workers that fail alike are shown once."""
    return re.sub(r"0x[0-9a-f]+|\d+", "#", traceback)
