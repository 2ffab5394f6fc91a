"""A supervisor and its forked workers, as small as the table's tests need: real processes, real signals, real death."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shmclaims import RowState, Segment, StripeRepair, check

DEADLINE_SECONDS = 20.0


@dataclass(frozen=True)
class Worker:
    """One forked worker."""

    pid: int
    incarnation: int
    index: int


def until(condition: Callable[[], object], what: str, *, seconds: float = DEADLINE_SECONDS) -> None:
    """Poll until the condition holds; fails the test after the deadline."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for: {what}"
        time.sleep(0.0005)


class Herd:
    """Owns a segment and forks workers that use its table."""

    def __init__(self, *, max_sessions: int = 48, stripes: int | None = 1) -> None:
        self.segment = Segment.create({"server": "herd"}, max_sessions=max_sessions, stripes=stripes)
        self.repair = StripeRepair(self.segment)
        self.workers: dict[int, Worker] = {}
        self._errors = os.memfd_create("errors")

    def register(self, index: int = 0, state: RowState = RowState.READY) -> int:
        """A row without a process: for workers that the test plays itself."""
        incarnation = self.segment.ring.register(index, now=time.time())
        self.segment.ring.set_state(incarnation, state)
        return incarnation

    def play(self, incarnation: int, index: int = 0) -> None:
        """From now on this process claims as that worker."""
        self.segment.table.bind(incarnation, index)

    def fork(self, body: Callable[[Segment], object], index: int = 0, state: RowState = RowState.READY) -> Worker:
        """Fork a worker that runs `body` and exits; its traceback, if it has one, fails the test at the end."""
        incarnation = self.register(index, state)
        pid = os.fork()
        if not pid:
            code = 1
            try:
                signal.alarm(120)  # whatever happens to the test, no worker outlives it for long
                self.segment.table.bind(incarnation, index)
                body(self.segment)
                code = 0
            except BaseException:
                os.write(self._errors, traceback.format_exc().encode())
            finally:
                os._exit(code)
        worker = Worker(pid, incarnation, index)
        self.workers[pid] = worker
        return worker

    def bury(self, worker: Worker, *, begin: bool = True) -> int:
        """Wait for a worker's end, mark it dead and begin its repair; returns the wait status."""
        _, status = os.waitpid(worker.pid, 0)
        del self.workers[worker.pid]
        self.segment.ring.mark_dead(worker.incarnation, now=time.time())
        if begin:
            self.repair.begin(worker.incarnation)
        return status

    def kill(self, worker: Worker, *, begin: bool = True) -> None:
        os.kill(worker.pid, signal.SIGKILL)
        self.bury(worker, begin=begin)

    def repair_all(self) -> None:
        """Drive the repair until nothing is left to do."""
        until(lambda: self.repair.step(time.monotonic()) is None and not self.repair.pending, "repair to end")

    def errors(self) -> str:
        size = os.fstat(self._errors).st_size
        return os.pread(self._errors, size, 0).decode()

    def close(self) -> list[str]:
        """End everything; returns what the checker and the workers complain about."""
        for worker in list(self.workers.values()):
            self.kill(worker)
        self.repair_all()
        found = check(self.segment)
        errors = self.errors()
        os.close(self._errors)
        self.segment.unlink()
        self.segment.close()
        return [*found, *([errors] if errors else [])]


def children() -> list[int]:
    """Pids of this process's children."""
    found: list[int] = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/self/task/{task}/children", encoding="ascii") as file:
            found += [int(pid) for pid in file.read().split()]
    return found


def names_of(segment_name: str) -> list[str]:
    """What is left of a segment under /dev/shm."""
    bare = segment_name[1:]
    return sorted(entry for entry in os.listdir("/dev/shm") if entry == bare or entry.startswith(f"sem.{bare}."))


@contextlib.contextmanager
def sound_herd(*, max_sessions: int = 48, stripes: int | None = 1) -> Iterator[Herd]:
    """A herd whose table must be sound at the end."""
    herd = Herd(max_sessions=max_sessions, stripes=stripes)
    complaints: list[str] = []
    try:
        yield herd
    finally:
        complaints = herd.close()
    assert complaints == []
