"""All servers of one config: `handle(event, now) -> effects`, without I/O and without a clock.

The loop calls `handle` for everything that happens, performs the effects in their order, and calls it with `Tick` when
`next_timer` says so. An illegal event raises IllegalStep and changes nothing.

Why the end is decided for all servers together: a service is one thing to whoever started it. It ends when it is told
to, or when one of its apps cannot be had at all; and only when every worker is reaped, so that nothing of it is left.
"""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.core import events
from supervisor.core.backoff import BackoffPolicy
from supervisor.core.changing import Changing
from supervisor.core.effects import Effect, Exit, KillAll, Log
from supervisor.core.events import Event, Worker
from supervisor.core.leaving import kill
from supervisor.core.seat import Seat
from supervisor.core.server import Server, ServerPlan

STATUS_FINE = 0
STATUS_OTHER = 1
STATUS_BOOT = 3

SAME_ORDER_SECONDS = 1.0
"""One stop that reaches the supervisor twice: systemd's default KillMode and `pkill` signal the guardian, which
forwards, and the supervisor alike. Two signals from the same side are two orders however close they are."""

KILL_PATIENCE_SECONDS = 10.0
"""How long a killed process may take to be gone: one that hangs in the kernel must not keep the service from ending."""


class Fleet:
    """The service's decisions. `servers` may be read, for messages and tests."""

    def __init__(self, plans: Sequence[ServerPlan], policy: BackoffPolicy | None = None) -> None:
        self.servers = {plan.name: Server(plan, policy or BackoffPolicy()) for plan in plans}
        self.exit_status: int | None = None
        self._changing = Changing(self.servers)
        self._unreaped: set[Worker] = set()
        self._stopping: int | None = None  # the exit status to end with
        self._first_signal: tuple[float, bool] | None = None
        self._patience: float | None = None

    def __repr__(self) -> str:
        return f"<Fleet {list(self.servers.values())}, {len(self._unreaped)} unreaped>"

    @property
    def stopping(self) -> bool:
        """Whether the service is on its way to its end."""
        return self._stopping is not None

    @property
    def reloading(self) -> bool:
        """Whether a reload has been asked for and is not over."""
        return self._changing.reloading

    def next_timer(self, now: float) -> float | None:
        """When to send a `Tick`, monotonic seconds, or None; never before `now`."""
        if self.exit_status is not None:
            return None
        times = [time for server in self.servers.values() if (time := server.next_timer()) is not None]
        if self._patience is not None:
            times.append(self._patience)
        return max(min(times), now) if times else None

    def handle(self, event: Event, now: float) -> list[Effect]:
        """What follows from one event. Raises IllegalStep when it cannot happen; then nothing has changed."""
        if self.exit_status is not None:
            return []
        effects = self._react(event, now)
        for server in self.servers.values():
            if server.gave_up and not self.stopping:
                text = f"given up after {server.plan.boot_tries} failed boots; stopping"
                effects += [Log("error", text, server.plan.name), *self._stop(STATUS_BOOT, now)]
        effects += self._changing.end("the service stops") if self.stopping else self._changing.go_on(now)
        return effects + self._end(now)

    def _react(self, event: Event, now: float) -> list[Effect]:
        match event:
            case events.Started():
                return [effect for server in self.servers.values() for effect in server.start()]
            case events.Tick():
                return [effect for server in self.servers.values() for effect in server.tick(now)]
            case events.Spawned(worker=worker):
                effects = self.servers[worker.server].spawned(event, now)
                self._unreaped.add(worker)
                return effects
            case events.SpawnFailed(server=name):
                return self.servers[name].spawn_failed(event, now)
            case events.StopSignal():
                return self._stop_signal(event, now)
            case events.QuitSignal():
                return self._kill_all("SIGQUIT", STATUS_FINE, now)
            case events.StopCommand():
                return [] if self.stopping else [self._saying("the stop command"), *self._stop(STATUS_FINE, now)]
            case events.ReloadAsked() | events.ScaleAsked() | events.DrainAsked():
                return self._changing.refuse(event) if self.stopping else self._changing.ask(event, now)
            case events.ConfigRead() | events.ConfigRefused():
                return self._changing.config(event)
            case events.GuardianDied():
                return self._kill_all("the guardian is gone", STATUS_OTHER, now)
            case events.TableBroken(server=name, reason=reason):
                return [] if self.stopping else [self._broken(name, reason), *self._stop(STATUS_OTHER, now)]
            case events.WorkerReaped(worker=worker):
                self._unreaped.discard(worker)
                return []
            case _:
                return self._worker_event(event, now)

    def _worker_event(self, event: events.WorkerEvent, now: float) -> list[Effect]:
        """What a worker says or what becomes of it; about a worker that is not there any more, nothing."""
        server = self.servers[event.worker.server]
        seat = server.find(event.worker)
        if seat is None:
            return []
        match event:
            case events.WorkerReady():
                return server.ready(seat, now)
            case events.WorkerBootFailed():
                return server.boot_failed(seat, event)
            case events.WorkerQuiet():
                return server.quiet(seat, now)
            case events.WorkerDrained():
                return server.drained(seat, now)
            case events.WorkerShared():
                return server.told_to_share(seat, event)
            case events.WorkerCut():
                return [_cut(seat, event)]
            case events.RecycleDue(reason=reason):
                self._changing.recycle(seat, reason, now)
                return []
            case events.WorkerDied():
                return server.died(seat, event, now)
            case events.StripeHeld(seconds=seconds):
                reason = f"has been inside a stripe of the table that has to be repaired for {seconds:g} s"
                return kill(seat, reason)
            case events.WorkerStalled():
                return _stalled(seat, event)
            case events.WorkerReaped():
                return []

    def _stop_signal(self, event: events.StopSignal, now: float) -> list[Effect]:
        first = self._first_signal
        if first is None:
            self._first_signal = (now, event.forwarded)
            if self.stopping:
                return [Log("info", f"{event.name}: already stopping; a second signal ends everything at once")]
            return [self._saying(event.name), *self._stop(STATUS_FINE, now)]
        at, forwarded = first
        if event.forwarded != forwarded and now - at < SAME_ORDER_SECONDS:
            return []
        return self._kill_all(f"{event.name}, the second signal", STATUS_FINE, now)

    def _broken(self, server: str, reason: str) -> Log:
        return Log("error", f"stopping, since the claim table cannot be vouched for: {reason}", server)

    def _saying(self, reason: str) -> Log:
        seconds = max((server.plan.graceful_seconds for server in self.servers.values()), default=0.0)
        return Log("info", f"stopping, within {seconds:g} s: {reason}")

    def _stop(self, status: int, now: float) -> list[Effect]:
        self._stopping = status
        effects = [effect for server in self.servers.values() for effect in server.stop(now)]
        graceful = max((server.plan.graceful_seconds for server in self.servers.values()), default=0.0)
        self._patience = now + graceful + KILL_PATIENCE_SECONDS
        return effects

    def _kill_all(self, reason: str, status: int, now: float) -> list[Effect]:
        if self._stopping is None:
            self._stopping = status
        self._patience = now + KILL_PATIENCE_SECONDS
        effects: list[Effect] = [Log("warning", f"killing everything at once: {reason}"), KillAll()]
        return effects + [effect for server in self.servers.values() for effect in server.kill(now)]

    def _end(self, now: float) -> list[Effect]:
        """The service's end: all workers reaped, or hanging in the kernel beyond all patience."""
        if self._stopping is None:
            return []
        if not self._unreaped and all(server.ended for server in self.servers.values()):
            self.exit_status = self._stopping
            return [Log("info", "stopped"), Exit(self.exit_status)]
        if self._patience is not None and now >= self._patience:
            self.exit_status = STATUS_OTHER
            stuck = ", ".join(
                str(seat.pid) for server in self.servers.values() for seat in server.everyone if seat.live
            )
            return [Log("error", f"killed workers are still there, pids {stuck or 'unknown'}"), Exit(STATUS_OTHER)]
        return []


def _cut(seat: Seat, event: events.WorkerCut) -> Log:
    named = ", ".join(f"{session}..." for session in event.sessions)
    more = f" and {event.count - len(event.sessions)} more" if event.count > len(event.sessions) else ""
    return seat.log("warning", f"worker {seat.index}, pid {seat.pid}: {event.count} sessions are cut: {named}{more}")


def _stalled(seat: Seat, event: events.WorkerStalled) -> list[Effect]:
    """Where it hangs stands in the log before it is killed."""
    if seat.condemned is not None:
        return []
    where = f", its threads:\n{event.stacks.rstrip()}" if event.stacks else "; its stacks could not be had"
    reason = f"has not beaten for {event.seconds:g} s (stall_seconds); {event.sessions} open sessions are lost"
    return [seat.log("error", f"worker {seat.index}, pid {seat.pid}, hangs{where}"), *kill(seat, reason)]
