"""The guardian: the process above the supervisor, which sees that nothing outlives it.

It forks the supervisor, forwards signals to it and ends with its exit status. Being a subreaper it inherits whatever a
killed supervisor leaves, the app's own children included, and kills that. It is too simple to fail: it holds no socket
and no state, and waits in one place for one thing.

As PID 1 of a container it is also everybody's last parent: children it does not know are reaped, and otherwise left
alone while the supervisor lives.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
import sys
import time
from collections.abc import Callable

from supervisor.processes import children
from supervisor.processes.linux import become_subreaper

logger = logging.getLogger("gym_supervise.guardian")

FORWARDED = frozenset(
    {
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGHUP,
        signal.SIGUSR1,
        signal.SIGTTIN,
        signal.SIGTTOU,
    }
)
WAITED = FORWARDED | {signal.SIGCHLD, signal.SIGABRT}

STATUS_OTHER = 1

ABORT_SECONDS = 2.0
"""What a supervisor that hangs has for writing down where, when a service manager's watchdog has found it out."""


def guard(run: Callable[[int], int]) -> int:
    """Run the supervisor in a child, watch over it, and clean up after it.

    Args:
        run: the supervisor: is given the guardian's pid, returns the exit status. Starts with the signals of WAITED
            blocked, in a process group of its own, so that the terminal's Ctrl-C comes once, from here.

    Returns:
        the supervisor's exit status; 1 when a signal killed it

    """
    _open_standard_streams()
    become_subreaper()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, WAITED)
    disposition = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # with it ignored nobody could wait for a child
    spared = children.pids()  # of a shell that has exec'd us, say
    guardian = os.getpid()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()  # or the child would write it again
    pid = os.fork()
    if pid == 0:
        _be_supervisor(run, guardian)
    _set_group(pid)
    try:
        exited = _watch(pid)
        ended, stuck = children.sweep(spared)
        if exited.si_code == os.CLD_EXITED:
            return exited.si_status
        name = signal.Signals(exited.si_status).name
        logger.error("the supervisor, pid %d, was killed by %s; %d processes that it left were ended", pid, name, ended)
        if stuck:
            logger.error("killed processes are still there: %s", sorted(stuck))
        return STATUS_OTHER
    finally:
        while signal.sigtimedwait(WAITED, 0) is not None:  # meant for what has just ended
            pass
        signal.signal(signal.SIGCHLD, disposition or signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _open_standard_streams() -> None:
    """Started with a standard stream closed, the next file opened would take its number and be written to as a log."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


def _be_supervisor(run: Callable[[int], int], guardian: int) -> None:
    status = STATUS_OTHER
    try:
        faulthandler.enable(file=2)  # its stack goes to the log, also when its interpreter does not turn any more
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGABRT})
        _set_group(0)
        status = run(guardian)
    except BaseException:
        logger.exception("the supervisor failed")
    finally:
        logging.shutdown()
        os._exit(status)


def _set_group(pid: int) -> None:
    """On both sides of the fork, so that neither has to wait for the other."""
    with contextlib.suppress(PermissionError, ProcessLookupError):
        os.setpgid(pid, 0)


def _watch(pid: int) -> os.waitid_result:
    """Forward signals until the supervisor has exited. SIGABRT, a watchdog's, ends it: in time, also a stopped one."""
    deadline = None
    while True:
        received = _wait(deadline)
        if received is None:
            children.kill(pid)
            deadline = None
            continue
        if received.si_signo == signal.SIGABRT:
            os.kill(pid, signal.SIGABRT)
            os.kill(pid, signal.SIGCONT)
            deadline = deadline or time.monotonic() + ABORT_SECONDS
            continue
        if received.si_signo != signal.SIGCHLD:
            os.kill(pid, received.si_signo)  # not reaped yet, so the pid is still its own
            continue
        while (exited := _next_exit()) is not None:
            if exited.si_pid == pid:
                return exited


def _wait(deadline: float | None) -> signal.struct_siginfo | None:
    if deadline is None:
        return signal.sigwaitinfo(WAITED)
    return signal.sigtimedwait(WAITED, max(deadline - time.monotonic(), 0.0))


def _next_exit() -> os.waitid_result | None:
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return None
