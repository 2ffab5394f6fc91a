"""Processes of a variant: started below a keeper, measured all together, ended with certainty."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.harness.keeper import GRACE_SECONDS, descendants
from benchmarks.harness.rows import Unmeasurable

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0
REPLACE_SECONDS = 30.0
SHOWN_LINES = 12


def free_port() -> int:
    """A TCP port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


class Kept:
    """One server below a keeper of its own; both are gone when this process is."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        restart: bool = False,
        core: int | None = None,
        grace: float = GRACE_SECONDS,
        env: dict[str, str] | None = None,
    ) -> None:
        self.log = log
        self._grace = grace
        keeper = [sys.executable, "-m", "benchmarks.harness.keeper", "--grace", str(grace)]
        keeper += ["--restart"] if restart else []
        keeper += [] if core is None else ["--core", str(core)]
        with log.open("ab") as output:
            self._keeper = subprocess.Popen(
                [*keeper, *command],
                cwd=ROOT,
                env={**os.environ, **(env or {})},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
            )

    def pids(self) -> list[int]:
        """All its processes, the keeper not among them; the server itself is the first."""
        return descendants(self._keeper.pid)

    def forked(self) -> list[int]:
        """The processes that multiprocessing has started for it, without its resource tracker."""
        return [pid for pid in self.pids() if b"--multiprocessing-fork" in _command_line(pid)]

    def replaced(self, before: Sequence[int]) -> None:
        """Wait until none of `before` is left among its processes. Raises Unmeasurable when it takes too long."""
        deadline = time.monotonic() + REPLACE_SECONDS
        while left := set(before) & set(self.pids()):
            if time.monotonic() > deadline:
                raise Unmeasurable(f"processes {sorted(left)} were not replaced in {REPLACE_SECONDS:.0f} s")
            time.sleep(0.02)

    def signal(self, number: int) -> None:
        """Signal the server itself; one that is just being started again gets none."""
        for pid in self.pids()[:1]:
            os.kill(pid, number)

    def wait_for(self, ready: Callable[[], bool], what: str) -> None:
        """Wait until `ready`. Raises Unmeasurable with the log's last lines when the server ends, or takes too long."""
        deadline = time.monotonic() + START_SECONDS
        born = False
        while not ready():
            alive = bool(self.pids())
            born = born or alive
            if (born and not alive) or time.monotonic() > deadline:
                tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-SHOWN_LINES:])
                raise Unmeasurable(f"{what} {'has ended' if born and not alive else 'is not ready'}:\n{tail}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End all of it."""
        assert self._keeper.stdin is not None
        with contextlib.suppress(OSError):
            self._keeper.stdin.close()
        try:
            self._keeper.wait(2 * self._grace + 1)
        except subprocess.TimeoutExpired:
            for pid in [self._keeper.pid, *self.pids()]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._keeper.wait()


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def cpu_seconds(pids: Sequence[int]) -> float:
    """CPU that processes have used, all threads, user and system."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            # The clock of another process: MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED) of the kernel's posix-timers.h.
            total += time.clock_gettime((~pid << 3) | 2)
    return total


def pss_bytes(pids: Sequence[int]) -> int:
    """Memory of processes, a page that several share divided among them (proc(5): smaps_rollup)."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:")) * 1024
    return total


def last_core() -> int | None:
    """The core that latencies are measured on; None where a process cannot be pinned."""
    try:
        return max(os.sched_getaffinity(0))
    except OSError:
        return None


@contextlib.contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """Pin this process to a core, so that a latency is the sum of the work and not a race of cores."""
    if core is None:
        yield
        return
    before, policy = os.sched_getaffinity(0), os.sched_getscheduler(0)
    os.sched_setaffinity(0, {core})
    # A client of the batch class does not interrupt the server that wakes it: a reply's head and body may be two
    # writes, and whether the first one hands the core over is chance, and 25 us.
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, os.sched_param(0))
        os.sched_setaffinity(0, before)
