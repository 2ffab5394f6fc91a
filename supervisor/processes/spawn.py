"""Forks workers, with `multiprocess`, from the supervisor's only thread.

Only a single-threaded process may fork and go on in Python: the locks of other threads would stay taken in the child.

`multiprocess` reaps behind one's back: starting a process polls all others, and a worker that died just then would be
no zombie any more when its death is looked at. Here a worker is reaped by `Child.reap` and by nobody else.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import multiprocess
from multiprocess.context import ForkProcess
from multiprocess.popen_fork import Popen

from supervisor.core.events import Worker
from supervisor.processes import hygiene
from supervisor.processes.worker_spec import WorkerSpec

logger = logging.getLogger("gym_supervise.supervisor")

WorkerMain = Callable[[WorkerSpec], int]

STATUS_OTHER = 1


def serve_app(spec: WorkerSpec) -> int:
    """The worker proper."""
    from supervisor.worker.main import main

    return main(spec)


class _Handle(Popen):  # type: ignore[misc]  # multiprocess has no types
    """The parent's view of a fork, which leaves the zombie where it is until it is asked to reap."""

    may_reap = False

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        return super().poll(flag) if self.may_reap else None


class _WorkerProcess(ForkProcess):  # type: ignore[misc]
    """One forked worker."""

    def __init__(self, spec: WorkerSpec, main: WorkerMain, kept: frozenset[int]) -> None:
        super().__init__(name=f"{spec.name}.{spec.index}", daemon=False)
        self._given: tuple[WorkerSpec, WorkerMain, frozenset[int]] | None = (spec, main, kept)
        self._supervisor = os.getpid()

    @staticmethod
    def _Popen(process: Any) -> _Handle:  # noqa: N802 - how multiprocess lets a process choose its way to start
        return _Handle(process)

    def forget(self) -> None:
        """In the parent, once it runs: what the child was given is not to be kept alive here."""
        self._given = None

    def reap(self) -> None:
        """Take the zombie away and give back the descriptors."""
        self._popen.may_reap = True
        self.join()
        self.close()

    def run(self) -> None:
        """The child's life; all signals are blocked at its start."""
        assert self._given is not None
        spec, main, kept = self._given
        hygiene.take_own_signals()
        hygiene.take_own_place(self._supervisor)
        hygiene.close_descriptors(kept | {multiprocess.parent_process().sentinel})
        hygiene.write_stacks_on_signal(spec.stacks)
        hygiene.take_own_environment(spec.server.env, str(spec.server.chdir))
        hygiene.take_own_exit_handlers()
        hygiene.unblock_signals()
        status = STATUS_OTHER
        try:
            status = main(spec)
        except Exception:
            logger.exception("worker %d of %s failed", spec.index, spec.name)
        finally:
            hygiene.run_exit_handlers()
        raise SystemExit(status)


@dataclass(slots=True)
class Child:
    """A worker as the supervisor holds it.

    pidfd   readable from its exit on; never means another process
    link    SOCK_SEQPACKET, non-blocking; carries supervisor.messages
    stacks  a file in memory, where it writes the stacks of its threads on hygiene.STACKS_SIGNAL
    """

    worker: Worker
    pid: int
    pidfd: int
    link: socket.socket
    stacks: int
    _process: _WorkerProcess

    def signal(self, number: int) -> None:
        """Send a signal to the worker's process, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def kill_group(self) -> None:
        """SIGKILL to its process group. Only before `reap`: until then the group's number is its own."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def exit_status(self) -> int | None:
        """Its exit status, or the signal's number, negative; None while it runs. Leaves the zombie."""
        exited = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if exited is None:
            return None
        return exited.si_status if exited.si_code == os.CLD_EXITED else -exited.si_status

    def reap(self) -> None:
        """Take the zombie away and close what belongs to it. Does not wait: the worker has exited."""
        self._process.reap()
        os.close(self.pidfd)
        os.close(self.stacks)
        self.link.close()


def spawn(make_spec: Callable[[socket.socket], WorkerSpec], main: WorkerMain = serve_app) -> Child:
    """Fork a worker.

    Args:
        make_spec: what it is given, from its end of the link.
        main: what it runs; returns its exit status.

    Raises:
        OSError: no process or no descriptor is to be had.
        RuntimeError: this process has more than one thread.

    """
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise RuntimeError(f"forking a worker: found {threads} threads, expected 1")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    with contextlib.ExitStack() as undo:
        undo.callback(ours.close)
        with theirs:
            spec = make_spec(theirs)
            stacks = os.memfd_create(f"stacks.{spec.name}.{spec.incarnation}")
            undo.callback(os.close, stacks)
            child = _fork(replace(spec, stacks=stacks), main, ours)
        undo.pop_all()
        return child


def _fork(spec: WorkerSpec, main: WorkerMain, ours: socket.socket) -> Child:
    given = (spec.link.fileno(), spec.stacks, *(listener.fileno() for listener in spec.listeners))
    kept = {*given, *spec.segment.descriptors()}
    process = _WorkerProcess(spec, main, frozenset(kept))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    process.forget()
    pid = process.pid
    try:
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)  # the child does the same; whoever comes first
        pidfd = os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        process.reap()  # it is dead within moments: it has run nothing yet that could hold it
        raise
    return Child(Worker(spec.name, spec.index, spec.incarnation), pid, pidfd, ours, spec.stacks, process)
