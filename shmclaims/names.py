"""The names of segments and semaphores under /dev/shm: made with a lock, removed with it, told stale from live by it.

A segment belongs to the process that holds an `lockf` lock on it. That lock is dropped as soon as its process closes
any descriptor of the file, so a process never opens a segment that it has made itself: `own` knows them.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import posix_ipc

from shmclaims.layout import FORMAT, HEADER, INFO_OFFSET, MAGIC

if TYPE_CHECKING:
    from shmclaims.segment import Segment

FOLDER = "/dev/shm"  # noqa: S108 -- where Linux keeps POSIX shared memory, and semaphores with "sem." before the name
PREFIX = "gsv-"
_SEGMENT = re.compile(r"gsv-[0-9a-f]{8}")
_SEMAPHORE = re.compile(r"sem\.(gsv-[0-9a-f]{8})\.[0-9]+")

_made: dict[str, tuple[int, Segment]] = {}  # name -> (pid of the creator, its segment)


class SegmentError(Exception):
    """Shared memory cannot be had, or a segment is not what it should be; says what was found and expected."""


class NoSegment(SegmentError):
    """No segment of that name."""


def keep(segment: Segment) -> None:
    """This process has made the segment."""
    _made[segment.name] = os.getpid(), segment


def forget(name: str) -> None:
    """This process has closed the segment, and so dropped its lock."""
    if own(name) is not None:
        del _made[name]


def own(name: str) -> Segment | None:
    """The open segment of that name, if this very process (not its parent) has made it."""
    pid, segment = _made.get(name, (0, None))
    return segment if pid == os.getpid() else None


def remove_stale(keep: Callable[[str, Mapping[str, Any]], bool] = lambda _name, _info: False) -> list[str]:
    """Remove this user's segments whose supervisor is gone, and semaphores without a segment; never a live one's.

    Args:
        keep: whether a dead supervisor's segment, by name and info, is still of use to somebody

    Returns:
        the names that were removed

    """
    removed = []
    for entry in sorted(os.listdir(FOLDER)):
        if _SEGMENT.fullmatch(entry) and _is_ours(entry) and own("/" + entry) is None:
            try:
                shared = posix_ipc.SharedMemory("/" + entry)
            except (OSError, posix_ipc.Error):
                continue
            try:
                fcntl.lockf(shared.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if is_named(entry, shared.fd) and not keep("/" + entry, _info(shared.fd)):
                    unlink("/" + entry)
                    removed.append("/" + entry)
            except OSError:
                pass  # its supervisor lives
            finally:
                shared.close_fd()
    for entry in sorted(os.listdir(FOLDER)):
        match = _SEMAPHORE.fullmatch(entry)
        if match and _is_ours(entry) and not os.path.exists(f"{FOLDER}/{match[1]}"):
            _unlink_semaphore("/" + entry.removeprefix("sem."))
            removed.append("/" + entry)
    return removed


def _info(descriptor: int) -> Mapping[str, Any]:
    """What its maker wrote into a segment; empty where it is not complete, or another version's."""
    try:
        magic, version, *_, length = HEADER.unpack(os.pread(descriptor, HEADER.size, 0))
        found = json.loads(os.pread(descriptor, length, INFO_OFFSET)) if (magic, version) == (MAGIC, FORMAT) else {}
    except (struct.error, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def new_locked() -> tuple[str, int]:
    """A new, empty, locked segment: (name, descriptor)."""
    while True:
        name = f"/{PREFIX}{secrets.token_hex(4)}"
        try:
            shared = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode=0o600, size=0)
        except posix_ipc.ExistentialError:
            continue
        except (OSError, posix_ipc.Error) as error:
            raise SegmentError(f"shared memory: cannot make a segment in {FOLDER}: {error}") from error
        try:
            fcntl.lockf(shared.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pass  # another supervisor's clean-up came between the two steps
        else:
            if is_named(name[1:], shared.fd):
                return name, int(shared.fd)
        shared.close_fd()


def is_named(entry: str, descriptor: int) -> bool:
    """Whether the name still means the file that is open."""
    try:
        named = os.stat(f"{FOLDER}/{entry}", follow_symlinks=False)
    except FileNotFoundError:
        return False
    opened = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)


def _is_ours(entry: str) -> bool:
    try:
        return os.stat(f"{FOLDER}/{entry}", follow_symlinks=False).st_uid == os.getuid()
    except FileNotFoundError:
        return False


def unlink(name: str) -> None:
    """Semaphores first: a segment that is still there says whose they are."""
    for entry in os.listdir(FOLDER):
        if entry.startswith(f"sem.{name[1:]}."):
            _unlink_semaphore("/" + entry.removeprefix("sem."))
    with suppress(posix_ipc.ExistentialError):
        posix_ipc.unlink_shared_memory(name)


def _unlink_semaphore(name: str) -> None:
    with suppress(posix_ipc.ExistentialError):
        posix_ipc.unlink_semaphore(name)
