"""Runs a function of the user's code in a child process that leaves nothing behind: to learn something, not to serve.

The child writes no bytecode, its stdout goes to stderr, it reads nothing, and it dies with this process. When it has
told what it was asked for it may end in its own way, for a moment; then its process group is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import multiprocess

from supervisor.processes import children, hygiene
from supervisor.processes.linux import become_subreaper, die_with_parent

Report = TypeVar("Report")
Tell = Callable[[Report], None]

LEAVE_SECONDS = 2.0
SWEEP_SECONDS = 1.0


class NoReport(Exception):
    """The child has told nothing; the message says how it ended."""


class TooLate(NoReport):
    """It would have taken longer than it may."""


def ask(function: Callable[[Tell[Report]], None], *, seconds: float, env: Mapping[str, str], folder: str) -> Report:
    """Run `function` in a child, with a server's environment and working folder, and return what it tells first.

    Args:
        function: is given `tell`; it may go on afterwards, for a moment.
        seconds: how long it may take until it tells.
        env: added to the environment.
        folder: its working folder, first on sys.path.

    Raises:
        NoReport: it took longer, or ended without telling.

    """
    fork = multiprocess.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    child = fork.Process(target=_child, args=(function, sender, os.getpid(), env, folder))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    child.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            raise TooLate(f"within boot_seconds, which is {seconds:g}")
        try:
            report: Report = receiver.recv()
        except EOFError:
            child.join()
            raise NoReport(f"ended with {child.exitcode}") from None
        child.join(LEAVE_SECONDS)
        return report
    finally:
        receiver.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.kill()
        child.join()


def _child(
    function: Callable[[Tell[Report]], None], sender: Any, parent: int, env: Mapping[str, str], folder: str
) -> None:
    die_with_parent(parent)
    os.setpgid(0, 0)
    become_subreaper()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.dont_write_bytecode = True
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # in a terminal under `stty tostop` a write would stop it
    hygiene.take_own_environment(env, folder)
    hygiene.take_own_exit_handlers()
    told = False

    def tell(report: Report) -> None:
        nonlocal told
        if not told:
            told = True
            sender.send(report)
            sender.close()

    try:
        function(tell)
    finally:
        with contextlib.suppress(BaseException):
            hygiene.run_exit_handlers()
        leave()


def leave() -> NoReturn:
    """End the child at once, from whichever thread: nothing but its own children is seen to."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    children.sweep(patience_seconds=SWEEP_SECONDS)
    os._exit(0)
