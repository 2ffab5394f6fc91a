"""What a freshly forked worker does to itself before it runs anything of the app's.

A forked child is a copy of the supervisor: its signal mask and handlers, its descriptors, its exit handlers, its
environment. Each of these has broken somebody's app; the comments say how.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import logging
import os
import signal
import sys
import threading
import weakref
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from types import FrameType

from supervisor.processes.linux import become_subreaper, die_with_parent

SUPERVISORS_VARIABLES = ("NOTIFY_SOCKET", "MAINPID", "MANAGERPID")
SUPERVISORS_PREFIXES = ("LISTEN_", "WATCHDOG_")

KEPT_HANDLERS = frozenset({signal.SIGKILL, signal.SIGSTOP, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ})
"""The first two cannot be set, SIGINT is set below, and Python itself ignores the last two."""

STACKS_SIGNAL = signal.SIGRTMAX - 1
"""Has a worker write the stacks of its threads. A real-time signal: USR1 and USR2 may be the app's own."""


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """A handler that does nothing.

    The terminal's Ctrl-C is the supervisor's to handle. With SIG_IGN, which exec keeps, the app's own REPLs could not
    be interrupted; a handler does not outlive exec.
    """


def take_own_signals() -> None:
    """Give up the supervisor's signal handling. All signals are blocked until `unblock_signals`."""
    signal.set_wakeup_fd(-1)
    faulthandler.disable()  # else the app's own `enable` would find it enabled and do nothing, with no handler left
    for number in signal.valid_signals() - KEPT_HANDLERS:
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):  # those that libc keeps for itself
            continue
    signal.signal(signal.SIGINT, _ignore)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # in a terminal under `stty tostop` a write would stop the worker


def write_stacks_on_signal(descriptor: int) -> None:
    """On STACKS_SIGNAL write the stacks of all threads there: also while the loop hangs and the GIL is held."""
    faulthandler.register(STACKS_SIGNAL, file=descriptor, all_threads=True, chain=False)


def unblock_signals() -> None:
    """Start with no signal blocked: neither the supervisor's, nor what whoever started it may have blocked."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def take_own_place(supervisor: int) -> None:
    """Lead a process group, end with the supervisor, and keep orphaned descendants."""
    die_with_parent(supervisor)
    os.setpgid(0, 0)
    become_subreaper()


def close_descriptors(kept: AbstractSet[int]) -> None:
    """Close everything that is not in `kept` and not a standard stream.

    Raw: an epoll object's `unregister` in the child would take the registration from the supervisor, whose epoll it is.
    The objects that these numbers belonged to stay referenced by the frames below, and `gc.freeze` keeps garbage that
    has one from closing a number that is another's by then.
    """
    gc.freeze()
    for entry in os.listdir("/proc/self/fd"):
        descriptor = int(entry)
        if descriptor > 2 and descriptor not in kept:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(descriptor)


def take_own_environment(variables: Mapping[str, str], folder: str) -> None:
    """The server's variables and folder; what systemd said to the supervisor is not the app's."""
    for name in list(os.environ):
        if name in SUPERVISORS_VARIABLES or name.startswith(SUPERVISORS_PREFIXES):
            del os.environ[name]
    os.environ.update(variables)
    os.chdir(folder)
    if folder in sys.path:
        sys.path.remove(folder)
    sys.path.insert(0, folder)


def take_own_exit_handlers() -> None:
    """Drop the supervisor's exit handlers, keep those that the standard library registers once, when it is imported."""
    atexit._clear()
    atexit.register(logging.shutdown)
    for name in ("multiprocessing.util", "multiprocess.util"):
        if name in sys.modules:
            atexit.register(sys.modules[name]._exit_function)
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]  # the supervisor's own finalizers
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]  # else the app's never run


def run_exit_handlers() -> None:
    """What the interpreter does at its end and a forked child does not: wait for threads, then run atexit."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
