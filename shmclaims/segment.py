"""A server's segment: made and allocated by its supervisor, inherited by its workers, read by everybody of its user.

The creator holds an `lockf` lock on the segment for its life, which is how a stale segment is told from a live one:
that lock belongs to one process, so forked workers neither keep it alive (as they would an `flock`) nor drop it. It
is dropped when its process closes any descriptor of the file, so a creator never opens its own segment a second time.

Workers use the mapping and the semaphores that they inherited and never open them by name: a log-out can remove a
user's names while the service runs on (`missing_names` tells).
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import struct
from collections.abc import Mapping
from mmap import ACCESS_READ, mmap
from typing import Any

import posix_ipc

from shmclaims import names
from shmclaims.layout import (
    BUCKET,
    FORMAT,
    HEADER,
    HEADER_SIZE,
    INFO_OFFSET,
    INFO_SIZE,
    MAGIC,
    ROWS,
    Geometry,
)
from shmclaims.names import NoSegment, SegmentError, remove_stale
from shmclaims.stripes import Stripes
from shmclaims.table import ClaimTable
from shmclaims.workers import WorkerRing

__all__ = ["NoSegment", "Segment", "SegmentError", "remove_stale"]

_FLOCK = "hhqqi4x"  # struct flock: l_type, l_whence, l_start, l_len, l_pid
_PAGE = 4096


class Segment:
    """A mapped segment and its parts: `ring`, `table`, `stripes`. Made by `create` or `attach`."""

    def __init__(
        self, name: str, memory: mmap, descriptor: int, semaphores: list[posix_ipc.Semaphore], *, creator: int
    ) -> None:
        magic, version, slots, bucket, stripes, max_sessions, rows, key, _, length = HEADER.unpack_from(memory, 0)
        if (magic, version, bucket, rows) != (MAGIC, FORMAT, BUCKET, ROWS):
            raise SegmentError(
                f"segment {name}: found {magic!r} format {version}, expected {MAGIC!r} format {FORMAT}: "
                "it is another version's, or not complete yet"
            )
        self.name = name
        self.geometry = Geometry(slots, stripes, max_sessions)
        if self.geometry.size != len(memory):
            raise SegmentError(f"segment {name}: found {len(memory)} bytes, expected {self.geometry.size}")
        self.info: dict[str, Any] = json.loads(memory[INFO_OFFSET : INFO_OFFSET + length])
        self._memory = memory
        self._descriptor = descriptor
        self._semaphores = semaphores
        self._creator = creator
        self._borrowed = False
        self.words = memoryview(memory).cast("Q")
        self.tags = memoryview(memory).cast("I")
        self._parts(key)

    def _parts(self, key: bytes) -> None:
        self.ring = WorkerRing(self.words)
        self.stripes = Stripes(self.words, self.geometry, self._semaphores)
        self.table = ClaimTable(
            self._memory, self.words, self.tags, geometry=self.geometry, key=key, ring=self.ring, stripes=self.stripes
        )

    # ---- life

    @classmethod
    def create(cls, info: Mapping[str, Any], *, max_sessions: int, stripes: int | None = None) -> Segment:
        """Make, allocate and lock a new segment for the supervisor that calls.

        Args:
            info: JSON for readers of the segment, at most 4,032 bytes
            max_sessions: sessions that surely fit
            stripes: how many locks; by default as many as the size suggests

        Raises:
            SegmentError: not enough shared memory (says found and needed), or none at all
            ValueError: `info` or `max_sessions` out of range

        """
        geometry = Geometry.for_sessions(max_sessions, stripes=stripes)
        text = json.dumps(dict(info), separators=(",", ":")).encode()
        if len(text) > INFO_SIZE:
            msg = f"segment info: found {len(text)} bytes, expected at most {INFO_SIZE}"
            raise ValueError(msg)
        name, descriptor = names.new_locked()
        try:
            os.posix_fallocate(descriptor, 0, geometry.size)
            semaphores = [
                posix_ipc.Semaphore(f"{name}.{stripe}", posix_ipc.O_CREX, mode=0o600, initial_value=1)
                for stripe in range(geometry.stripes)
            ]
            memory = mmap(descriptor, geometry.size)
        except BaseException as error:
            names.unlink(name)
            os.close(descriptor)
            if isinstance(error, OSError | posix_ipc.Error):
                raise _refused(geometry, error) from error
            raise
        key = secrets.token_bytes(16)
        memory[INFO_OFFSET : INFO_OFFSET + len(text)] = text
        fields = (FORMAT, geometry.slots, BUCKET, geometry.stripes, max_sessions, ROWS, key, 1, len(text))
        memory[8 : HEADER.size] = HEADER.pack(MAGIC, *fields)[8:]
        memory[:8] = MAGIC  # the commit: a reader that comes earlier finds no segment
        segment = cls(name, memory, descriptor, semaphores, creator=os.getpid())
        names.keep(segment)
        return segment

    @classmethod
    def attach(cls, name: str) -> Segment:
        """Map a segment for reading, also of a stopped or dead supervisor: no claims, no stripes' values.

        Raises:
            NoSegment: there is none of that name
            SegmentError: it is not a segment of this version, or may not be read

        """
        own = names.own(name)
        if own is not None:
            return own._view()
        try:
            shared = posix_ipc.SharedMemory(name, read_only=True)
        except posix_ipc.ExistentialError:
            raise NoSegment(f"segment {name}: found none of that name in {names.FOLDER}") from None
        except (OSError, posix_ipc.Error) as error:
            raise SegmentError(f"segment {name}: {error}") from error
        try:
            return cls(name, _map_to_read(name, shared.fd), shared.fd, [], creator=0)
        except BaseException:
            shared.close_fd()
            raise

    def close(self) -> None:
        """Unmap. In the creator this drops the lock: others may then take the segment for stale."""
        self.words.release()
        self.tags.release()
        if self._borrowed:
            return
        self._memory.close()
        for semaphore in self._semaphores:
            semaphore.close()
        os.close(self._descriptor)
        if self._creator == os.getpid():
            names.forget(self.name)

    def unlink(self) -> None:
        """Remove the names of segment and semaphores; the mappings of those that have it stay usable."""
        names.unlink(self.name)

    # ---- about it

    def supervisor_alive(self) -> bool:
        """Whether the process that created the segment still holds its lock."""
        if self._creator == os.getpid():
            return True
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = struct.unpack(_FLOCK, fcntl.fcntl(self._descriptor, fcntl.F_GETLK, asked))
        return bool(answer[0] != fcntl.F_UNLCK)

    def missing_names(self) -> list[str]:
        """Names that somebody has removed while the segment is in use; reported once, they hurt only readers."""
        expected = [self.name[1:], *(f"sem.{self.name[1:]}.{stripe}" for stripe in range(self.geometry.stripes))]
        return [name for name in expected if not os.path.exists(f"{names.FOLDER}/{name}")]

    def descriptors(self) -> frozenset[int]:
        """The open descriptors of the segment (mmap keeps one of its own): a forked worker must not close them."""
        mine = os.fstat(self._descriptor)
        found = set()
        for entry in os.listdir("/proc/self/fd"):
            try:
                other = os.fstat(int(entry))
            except OSError:
                continue  # the listing's own
            if (other.st_dev, other.st_ino) == (mine.st_dev, mine.st_ino):
                found.add(int(entry))
        return frozenset(found)

    def _view(self) -> Segment:
        """A read-only segment on the creator's own mapping."""
        view = object.__new__(Segment)
        view.__dict__.update(self.__dict__)
        view.words = self.words.toreadonly()
        view.tags = self.tags.toreadonly()
        view._semaphores = []
        view._borrowed = True
        view._parts(HEADER.unpack_from(self._memory, 0)[7])
        return view

    def __repr__(self) -> str:
        return f"<Segment {self.name} {self.ring!r} {self.table!r}>"


def _map_to_read(name: str, descriptor: int) -> mmap:
    size = os.fstat(descriptor).st_size
    if size < HEADER_SIZE:
        raise SegmentError(f"segment {name}: found {size} bytes, expected a complete segment")
    return mmap(descriptor, size, access=ACCESS_READ)


def _refused(geometry: Geometry, error: Exception) -> SegmentError:
    """What an operator needs to know when memory cannot be had; what was taken for it is free again."""
    there, needed = os.statvfs(names.FOLDER), geometry.size + geometry.stripes * _PAGE
    return SegmentError(
        f"shared memory: found {_mib(there.f_bavail * there.f_frsize)} free of {_mib(there.f_blocks * there.f_frsize)} "
        f"in {names.FOLDER}, needed {_mib(needed)} for max_sessions {geometry.max_sessions} ({error}): "
        "lower claims.max_sessions, or enlarge it (Docker: --shm-size)"
    )


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
