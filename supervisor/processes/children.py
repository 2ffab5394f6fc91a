"""The children of this process as the kernel sees them: also those that it never forked, but got as a subreaper."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Set as AbstractSet

PATIENCE_SECONDS = 10.0
"""How long to wait for killed processes. One in an uninterruptible wait must not hold up the end for ever."""

POLL_SECONDS = 0.05


def pids() -> set[int]:
    """Every child, zombies included. For single-threaded processes: children belong to threads.

    The file is exact here, since only this process reaps, and never while it reads.
    """
    own = os.getpid()
    try:
        with open(f"/proc/self/task/{own}/children", "rb") as file:
            return set(map(int, file.read().split()))
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return _by_scanning(own)


def _by_scanning(own: int) -> set[int]:
    found = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()  # the name before it may hold anything
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == own:
            found.add(int(entry))
    return found


def kill(pid: int) -> None:
    """SIGKILL to a child that is not reaped yet, so that the pid cannot be another's."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def reap(pid: int) -> bool:
    """Take a child's exit status away if it has exited; whether it is gone."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is not None
    except ChildProcessError:
        return True


def sweep(spared: AbstractSet[int] = frozenset(), patience_seconds: float = PATIENCE_SECONDS) -> tuple[int, set[int]]:
    """Kill and reap children until none is left: what a killed one leaves behind becomes a child in turn.

    Blocks; for the end of a process that has nothing else to do. SIGCHLD must be blocked.

    Args:
        spared: pids that are none of ours
        patience_seconds: for all together

    Returns:
        how many were ended, and the pids of those that would not end

    """
    ended = 0
    deadline = time.monotonic() + patience_seconds
    while left := pids() - spared:
        for pid in left:
            kill(pid)
        gone = sum(reap(pid) for pid in left)
        ended += gone
        if gone == 0:
            if time.monotonic() >= deadline:
                return ended, left
            signal.sigtimedwait({signal.SIGCHLD}, POLL_SECONDS)
    return ended, set()
