"""What happens to a worker after its death, and to what it leaves behind.

    exit seen, still a zombie   its ring row turns dead, first of all: all its claims are gone, for all workers
                                its stripes go into repair
    after the grace             its process group is killed, then it is reaped

Why a grace: the app's own helpers clean up when they see it die, the standard library's resource tracker above all,
which sits in the same group; killed at once, the app's shared memory would leak. Nobody waits for it: the replacement
starts meanwhile.

Why zombies are kept: until it is reaped a process's number, and its group's, cannot become another's.

Every worker is a subreaper, so an unknown child of the supervisor is what a dead worker left, whatever session or group
it is in. It gets the same grace, counted from when it came here. When there is no such child, nobody needs the grace.
"""

from __future__ import annotations

import signal
from typing import Protocol

from supervisor.core.events import Worker, WorkerDied
from supervisor.processes import children
from supervisor.processes.exits import describe
from supervisor.processes.spawn import Child

GRACE_SECONDS = 0.5


class Deaths(Protocol):
    """Told about a death before anything else is done."""

    def mark_gone(self, worker: Worker, status: int | None = None) -> int:
        """Turn the worker's row dead, with its exit status, and begin the repair of its stripes.

        Returns its open sessions.
        """


class Reaper:
    """All workers that are not reaped yet, and all that dead ones left behind. Times are monotonic seconds."""

    def __init__(self, deaths: Deaths, grace_seconds: float = GRACE_SECONDS) -> None:
        self.live: dict[Worker, Child] = {}
        self._dead: dict[Worker, tuple[Child, float]] = {}
        self._orphans: dict[int, float | None] = {}  # pid -> when to kill it; None: killed
        self._deaths = deaths
        self._grace_seconds = grace_seconds

    def __repr__(self) -> str:
        return f"<Reaper {len(self.live)} live, {len(self._dead)} dead, {len(self._orphans)} orphans>"

    @property
    def idle(self) -> bool:
        """Whether no process is left."""
        return not self.live and not self._dead and not self._orphans

    def add(self, child: Child) -> None:
        """Watch over a worker from here on."""
        self.live[child.worker] = child

    def look(self, child: Child, now: float) -> WorkerDied | None:
        """Whether a worker has exited; if so it is marked gone at once, and reaped later."""
        status = child.exit_status()
        if status is None or child.worker not in self.live:
            return None
        sessions = self._deaths.mark_gone(child.worker, status)
        del self.live[child.worker]
        self._dead[child.worker] = (child, now + self._grace_seconds)
        return WorkerDied(child.worker, status, describe(status), sessions)

    def step(self, now: float) -> list[Worker]:
        """Do what is due. Returns the workers of which nothing is left."""
        if not self._dead and not self._orphans and not self.live:
            return []
        self._look_for_orphans(now)
        for pid, due in self._orphans.items():
            if due is not None and now >= due:
                children.kill(pid)
                self._orphans[pid] = None
        reaped = []
        for worker, (child, due) in list(self._dead.items()):
            if now >= due or not self._orphans:
                child.kill_group()
                child.reap()
                del self._dead[worker]
                reaped.append(worker)
        return reaped

    def next_timer(self) -> float | None:
        """When `step` has something to do, at the earliest; SIGCHLD is the other reason to call it."""
        times = [due for _, due in self._dead.values()]
        times += [due for due in self._orphans.values() if due is not None]
        return min(times, default=None)

    def kill_all(self, now: float) -> None:
        """Kill everything, and give nothing a grace from here on."""
        self._grace_seconds = 0.0
        for child in self.live.values():
            child.signal(signal.SIGKILL)
            child.kill_group()
        self._dead = {worker: (child, now) for worker, (child, _) in self._dead.items()}
        self._orphans = {pid: None if due is None else now for pid, due in self._orphans.items()}

    def _look_for_orphans(self, now: float) -> None:
        known = {child.pid for child in self.live.values()} | {child.pid for child, _ in self._dead.values()}
        found = children.pids() - known
        for pid in list(found):
            if children.reap(pid):
                found.discard(pid)
        self._orphans = {pid: self._orphans.get(pid, now + self._grace_seconds) for pid in found}
