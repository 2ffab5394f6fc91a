"""The claim table beside a small claim file on tmpfs: look up another worker's claim, claim, release.

Both hold the same sessions, half of the table's slots. The file's way is the leanest that claims correctly: named by
the session, made with O_EXCL, ended by unlink, read with open, read and close and not even parsed; it knows nothing of
dead owners.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from benchmarks.harness.rows import Case, Key, Mark, Opened, Row, Sample, Suite, ratio, single
from shmclaims import Handle, RowState, Segment

MAX_SESSIONS = 50_000
BATCH = 200  # operations in one measurement: more, and most are cut by the scheduler on a busy machine
OPERATIONS = ("lookup", "miss", "claim", "release")
TABLE, FILE = "table", "file"
CONTENT = b"7 2 1700000000\n"  # what such a file would say: incarnation, index, time
MICRO = 1e6


class Ways:
    """The two ways to hold the same claims."""

    def __init__(self, segment: Segment, folder: str, sessions: Sequence[bytes]) -> None:
        self.table = segment.table
        self.folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self.sessions = sessions
        other, me = (segment.ring.register(index, now=time.time()) for index in (0, 1))
        for incarnation in (other, me):
            segment.ring.set_state(incarnation, RowState.READY)
        self.table.bind(other, 0)
        for session in sessions:
            self.table.try_claim(session, now=time.time())
            self.create(session)
        self.table.bind(me, 1)
        self.handles: list[Handle] = []

    def create(self, session: bytes) -> None:
        """Claim by a file."""
        file = os.open(session, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self.folder)
        os.write(file, CONTENT)
        os.close(file)

    def read(self, session: bytes) -> bytes:
        """Look up by a file."""
        file = os.open(session, os.O_RDONLY, dir_fd=self.folder)
        content = os.read(file, 64)
        os.close(file)
        return content

    def miss(self, session: bytes) -> None:
        """Look up by a file what nobody claims."""
        with suppress(FileNotFoundError):
            os.open(session, os.O_RDONLY, dir_fd=self.folder)

    def unlink(self, session: bytes) -> None:
        """Release by a file."""
        os.unlink(session, dir_fd=self.folder)

    def claim(self, session: bytes) -> None:
        """Claim in the table."""
        self.handles.append(self.table.try_claim(session, now=1_700_000_000.0))

    def release(self, _: bytes) -> None:
        """Release in the table."""
        self.table.try_release(self.handles.pop())

    def looked_up(self, operation: Callable[[bytes], object]) -> Sample:
        """Seconds of a look-up of a known session, and of one that nobody claims."""
        miss = self.miss if operation == self.read else operation
        known = timed(operation, random.sample(self.sessions, BATCH))
        return {"lookup": known, "miss": timed(miss, new_sessions(BATCH))}

    def changed(self, claim: Callable[[bytes], object], release: Callable[[bytes], object]) -> Sample:
        """Seconds of a claim and of a release."""
        fresh = new_sessions(BATCH)
        return {"claim": timed(claim, fresh), "release": timed(release, fresh)}


def new_sessions(count: int) -> list[bytes]:
    """Ids that nobody has."""
    return [str(uuid.uuid4()).encode() for _ in range(count)]


def timed(operation: Callable[[bytes], object], sessions: Sequence[bytes]) -> float:
    """Seconds of one operation, the mean of a batch."""
    began = time.perf_counter()
    for session in sessions:
        operation(session)
    return (time.perf_counter() - began) / len(sessions)


@contextmanager
def both_ways(max_sessions: int) -> Iterator[Ways]:
    """A segment and a folder on the same tmpfs, half full."""
    segment = Segment.create({"server": "benchmark"}, max_sessions=max_sessions)
    folder = tempfile.mkdtemp(prefix="gym-supervise-benchmark-", dir="/dev/shm")
    ways = Ways(segment, folder, new_sessions(segment.geometry.slots // 2))
    try:
        yield ways
    finally:
        os.close(ways.folder)
        shutil.rmtree(folder)
        segment.unlink()
        segment.close()


@contextmanager
def opened(_wanted: frozenset[Key]) -> Iterator[Opened]:
    """Both ways, and what is done in each."""
    with both_ways(MAX_SESSIONS) as ways:
        yield Opened(
            [
                Case("look up", TABLE, partial(ways.looked_up, ways.table.lookup)),
                Case("look up", FILE, partial(ways.looked_up, ways.read)),
                Case("change", TABLE, partial(ways.changed, ways.claim, ways.release)),
                Case("change", FILE, partial(ways.changed, ways.create, ways.unlink)),
            ]
        )


def _case(operation: str) -> str:
    return "look up" if operation in {"lookup", "miss"} else "change"


_TIMES = {"lookup": Mark(2.0)}
_RATIOS = {"lookup": Mark(0.8)}

ROWS = (
    *(
        Row(f"table-{one}", f"claim table: {one}", "us", single(one, (_case(one), TABLE), times=MICRO), _TIMES.get(one))
        for one in OPERATIONS
    ),
    *(
        Row(
            f"table-{one}-file",
            f"claim table: {one} / the same with a file",
            "",
            ratio(one, (_case(one), TABLE), (_case(one), FILE)),
            _RATIOS.get(one),
        )
        for one in OPERATIONS
    ),
)

SUITE = Suite("table", "the claim table beside claim files on tmpfs, half full", 200, ROWS, opened)
