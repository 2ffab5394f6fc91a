"""Finds a service by its runtime folder: who supervises it, whether that process runs, and which segments it has.

`lock` is held by the supervisor for its life, so the kernel says who it is: no pid is believed because it stands in a
file. `supervisor.json` names the segments; after a crash it is still there, and so are they.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

STATE_FILE = "supervisor.json"
LOCK_FILE = "lock"

_FLOCK = "@hhqqi0q"  # struct flock of 64-bit Linux: type, whence, start, length, pid; fcntl(2)

State = Literal["running", "stopped", "starting", "dead"]


def lock_holder(path: Path) -> int | None:
    """The pid of the process that holds a lockf lock on a file; None: nobody does, or there is no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else pid


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the process's state on; empty when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def process_state(pid: int) -> str | None:
    """The kernel's letter for a process's state (proc(5): Z is a zombie, T stopped); None: there is none."""
    fields = _stat_fields(pid)
    return fields[0] if fields else None


@dataclass(frozen=True)
class Service:
    """What a runtime folder says.

    running   the supervisor lives              stopped   it lives, but a signal has stopped it
    starting  it lives, and has no segments yet dead      it has left without an orderly end
    """

    runtime_dir: Path
    state: State
    supervisor_pid: int | None
    guardian_pid: int | None = None
    started_at: Any = None
    version: str | None = None
    segments: Mapping[str, str] = field(default_factory=dict)

    def holds_lock(self, pid: int) -> bool:
        """Whether the process is still the supervisor."""
        return lock_holder(self.runtime_dir / LOCK_FILE) == pid


def read(runtime_dir: Path) -> Service | None:
    """The service of one runtime folder, or None when there is none.

    Raises PermissionError when the folder belongs to another user.
    """
    holder = lock_holder(runtime_dir / LOCK_FILE)
    try:
        noted = json.loads((runtime_dir / STATE_FILE).read_text())
    except FileNotFoundError:
        noted = None
    except ValueError:
        noted = None
    if not isinstance(noted, dict) or (holder is not None and noted.get("pid") != holder):
        return None if holder is None else Service(runtime_dir, "starting", holder)
    state: State = "dead"
    guardian = None
    if holder is not None:
        fields = _stat_fields(holder)
        state = "stopped" if fields[:1] == ["T"] or fields[:1] == ["t"] else "running"
        guardian = noted.get("guardian") if fields[1:2] == [str(noted.get("guardian"))] else None
    return Service(
        runtime_dir,
        state,
        noted.get("pid") if holder is None else holder,
        guardian,
        noted.get("started_at"),
        noted.get("version"),
        noted.get("segments") or {},
    )


def find(runtime_dirs: Iterable[Path]) -> Service | None:
    """The first living service of several folders, or the first dead one."""
    found = [service for folder in runtime_dirs if (service := read(folder)) is not None]
    return next((service for service in found if service.state != "dead"), found[0] if found else None)
