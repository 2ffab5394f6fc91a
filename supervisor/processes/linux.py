"""The few Linux calls that Python's standard library does not have."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
from collections.abc import Iterable
from dataclasses import dataclass

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SFD_CLOEXEC = os.O_CLOEXEC
SFD_NONBLOCK = os.O_NONBLOCK
SI_KERNEL = 0x80
SIGSET_BYTES = 128  # glibc's and musl's sigset_t alike; the kernel reads the first 8

_SIGINFO = struct.Struct("=IiiI")  # ssi_signo, ssi_errno, ssi_code, ssi_pid: the head of signalfd_siginfo
_SIGINFO_BYTES = 128

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, call: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


def _prctl(option: int, argument: int) -> None:
    zero = ctypes.c_ulong(0)
    _check(_libc.prctl(option, ctypes.c_ulong(argument), zero, zero, zero), "prctl")


def become_subreaper() -> None:
    """From here on orphans among this process's descendants become its children."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Let SIGKILL come when the parent ends; end now when it has ended already.

    The signal is tied to the thread that forked: fork from a thread that lives as long as its process.
    """
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def raise_descriptor_limit() -> None:
    """Raise this process's limit of open descriptors to its hard limit; children inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@dataclass(frozen=True, slots=True)
class Received:
    """A signal as it came.

    sender   pid, 0 when the kernel sent it, as it does for a terminal
    """

    number: int
    sender: int


class SignalDescriptor:
    """signalfd(2): blocked signals become readable, each with its sender."""

    def __init__(self, numbers: Iterable[int]) -> None:
        mask = bytearray(SIGSET_BYTES)
        for number in numbers:
            mask[(number - 1) // 8] |= 1 << (number - 1) % 8
        buffer = (ctypes.c_char * SIGSET_BYTES).from_buffer(mask)
        self._descriptor = _check(_libc.signalfd(-1, buffer, SFD_CLOEXEC | SFD_NONBLOCK), "signalfd")

    def fileno(self) -> int:
        """For epoll."""
        return self._descriptor

    def read(self) -> list[Received]:
        """Every signal that is pending, in no order that means anything."""
        received: list[Received] = []
        while True:
            try:
                data = os.read(self._descriptor, 16 * _SIGINFO_BYTES)
            except BlockingIOError:
                return received
            for start in range(0, len(data), _SIGINFO_BYTES):
                number, _, code, sender = _SIGINFO.unpack_from(data, start)
                received.append(Received(number, 0 if code == SI_KERNEL else sender))

    def close(self) -> None:
        """Close the descriptor; the signals stay blocked."""
        os.close(self._descriptor)
