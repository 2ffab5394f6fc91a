"""Keeps one server of a benchmark: started, started again if asked, and ended with all that came of it.

    python -m benchmarks.harness.keeper [--restart] [--core N] [--grace SECONDS] COMMAND...

It ends when its standard input closes, which the end of the benchmark does, however it comes: SIGTERM to the server,
SIGKILL to whatever is left of it after a grace, orphans included, until nothing is. With --restart it is what a systemd
unit with Restart=always is to a server.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import time

from supervisor.processes.linux import become_subreaper

GRACE_SECONDS = 8.0
RESTART_SECONDS = 0.1
STDIN = 0


def parent_of(pid: int) -> int | None:
    """The parent's pid, None when there is no such process, or it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, parent = file.read().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state in "ZX" else int(parent)


def descendants(root: int) -> list[int]:
    """The pids of all live descendants of a process, parents first."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (parent := parent_of(int(entry))) is not None:
            children.setdefault(parent, []).append(int(entry))
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def main() -> None:
    """Keep it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.harness.keeper", description=__doc__)
    parser.add_argument("--restart", action="store_true")
    parser.add_argument("--core", type=int)
    parser.add_argument("--grace", type=float, default=GRACE_SECONDS)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    if given.core is not None:
        os.sched_setaffinity(0, {given.core})
    become_subreaper()
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the benchmark's affair
    server = _start(given.command)
    while True:
        readable, _, _ = select.select([STDIN, woken], [], [])
        if STDIN in readable:
            break
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 4096)
        if server in _reap() and given.restart:
            if select.select([STDIN], [], [], RESTART_SECONDS)[0]:
                break
            server = _start(given.command)
    _end(server, given.grace)


def _start(command: list[str]) -> int:
    # No Popen: dropped, it reaps a child that is dead by then, and nobody would hear of that death.
    nothing = (os.POSIX_SPAWN_OPEN, STDIN, os.devnull, os.O_RDONLY, 0)
    return os.posix_spawnp(command[0], command, os.environ, file_actions=[nothing], setsigdef=[signal.SIGINT])


def _reap() -> set[int]:
    ended = set()
    with contextlib.suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            ended.add(pid)
    return ended


def _end(server: int, grace: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(server, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while left := descendants(os.getpid()):
        if time.monotonic() > deadline or server not in left:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        _reap()
        time.sleep(0.01)


if __name__ == "__main__":
    main()
