"""The runtime folder: made safe, locked, cleaned of what a crashed supervisor left.

    lock              held (lockf) by the supervisor for its life, with its pid inside; never removed
    control.sock      the control socket
    supervisor.json   who runs here and which segments it has; stays after a crash, so that they can be read
    SERVER.N.sock     the private socket of the worker with incarnation N
    SERVER.N.fds      its socket for connections that other workers hand to it

The lock is an `lockf` one: forked workers do not hold it, so it is free the moment the supervisor is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import stat
import struct
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

from supervisor.errors import BindError
from supervisor.processes.worker_spec import handover_path, private_path

LOCK = "lock"
STATE = "supervisor.json"
CONTROL = "control.sock"
UNIX_PATH_BYTES = 107  # sun_path has 108, the last is NUL (unix(7))
MAX_INCARNATION = 0xFFFFFFFF

_FLOCK = struct.Struct("@hhqqi0q")  # struct flock of 64-bit Linux: type, whence, start, length, pid
_PRIVATE_SOCKET = re.compile(r".+\.[0-9]+\.(sock|fds)")


class RuntimeDir:
    """A folder that this supervisor has for itself until `close`."""

    def __init__(self, path: str) -> None:
        """Make, check and lock the folder, and remove what a crashed supervisor left in it.

        Raises:
            BindError: another supervisor has it, or it is not safe to use.

        """
        self.path = path
        try:
            _make(path)
            self._lock = _take_lock(path)
        except OSError as error:
            raise BindError(
                f"runtime_dir {path}", found=error.strerror or str(error), expected="a folder of ours"
            ) from error
        self.clean()

    @property
    def control_path(self) -> str:
        """Where the control socket is."""
        return os.path.join(self.path, CONTROL)

    def check_names(self, servers: Iterable[str]) -> None:
        """Refuse a folder in which the private sockets would get too long a path. Raises BindError."""
        for server in servers:
            longest = private_path(self.path, server, MAX_INCARNATION)
            size = len(os.fsencode(longest))
            if size > UNIX_PATH_BYTES:
                found = f"{size} bytes for {longest}"
                expected = f"at most {UNIX_PATH_BYTES}, Linux's limit for the path of a socket"
                raise BindError(
                    f"runtime_dir {self.path}", found=found, expected=expected, do="set a shorter runtime_dir"
                )

    def clean(self) -> None:
        """Remove sockets and supervisor.json; the lock says that nobody else uses them."""
        for entry in os.scandir(self.path):
            written = entry.name == STATE or entry.name.startswith(f".{STATE}.")
            named = entry.name == CONTROL or _PRIVATE_SOCKET.fullmatch(entry.name)
            if written or (named and stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)

    def remove_private_sockets(self, server: str, incarnation: int) -> None:
        """Remove what a dead worker could not."""
        for path in (private_path, handover_path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path(self.path, server, incarnation))

    def write_state(self, state: Mapping[str, Any]) -> None:
        """Write supervisor.json in one step, so that no reader sees half of it."""
        descriptor, name = tempfile.mkstemp(dir=self.path, prefix=f".{STATE}.")  # mode 0600
        try:
            with os.fdopen(descriptor, "w") as file:
                json.dump(dict(state), file, indent=2)
            os.rename(name, os.path.join(self.path, STATE))
        except BaseException:
            os.unlink(name)
            raise

    def close(self) -> None:
        """Clean up and let others have it."""
        self.clean()
        os.close(self._lock)


def is_named(segment: str, info: Mapping[str, Any]) -> bool:
    """Whether a crashed service's folder still leads to its segment: `claims` shows it until that service starts."""
    try:
        with open(os.path.join(info["runtime_dir"], STATE), "rb") as file:
            return segment in json.load(file)["segments"].values()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _make(path: str) -> None:
    """Make the folder with mode 0700, and see that nobody else can have prepared it."""
    missing = []
    folder = path
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for one in reversed(missing):
        os.mkdir(one, 0o700)
    for one in _in_everybodys_folder(path):
        _check(one, whole=False)
    _check(path, whole=True)


def _in_everybodys_folder(path: str) -> list[str]:
    """Those parts of the path that anybody could have made: entries of a folder such as /tmp."""
    found = []
    while (parent := os.path.dirname(path)) != path:
        mode = os.stat(parent).st_mode
        if mode & stat.S_IWOTH:
            found.append(path)
        path = parent
    return found


def _check(path: str, *, whole: bool) -> None:
    """lstat, not stat: a link could be turned to somewhere else later. Raises BindError."""
    found = os.lstat(path)
    what = f"runtime_dir {path}"
    if not stat.S_ISDIR(found.st_mode):
        kind = "a link" if stat.S_ISLNK(found.st_mode) else "no folder"
        raise BindError(what, found=kind, expected="a folder", do="remove it or set another runtime_dir")
    if found.st_uid not in ({os.geteuid()} if whole else {os.geteuid(), 0}):
        owner = f"a folder of user {found.st_uid}"
        raise BindError(what, found=owner, expected=f"one of user {os.geteuid()}", do="set another runtime_dir")
    if not whole:
        return
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = f"mode {stat.S_IMODE(found.st_mode):04o}"
        raise BindError(what, found=mode, expected="0700", do="others may have put something in it: remove it")
    if stat.S_IMODE(found.st_mode) != 0o700:
        os.chmod(path, 0o700)


def _take_lock(path: str) -> int:
    name = os.path.join(path, LOCK)
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pid = _holder(descriptor)
        os.close(descriptor)
        do = "stop it, or set another runtime_dir or name"
        raise BindError(
            f"runtime_dir {path}", found=f"another supervisor, pid {pid}", expected="nobody", do=do
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
    return descriptor


def _holder(descriptor: int) -> str:
    """Whose the lock is, as the kernel says: what stands in a file may be an old pid."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    pid: int = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))[4]
    return str(pid) if pid > 0 else "unknown"
