"""The claim table beside a small claim file on tmpfs: look up another worker's claim, claim, release.

    python -m benchmarks.table [--rounds N]

Both hold the same sessions, half of the table's slots. A round takes random sessions and measures every operation of
both ways, in random order, so that its ratios compare what the machine did at one moment; shown are medians and
quartiles of the rounds. The file's way is the leanest that claims correctly: named by the session, made with O_EXCL,
ended by unlink, read with open, read and close and not even parsed; it knows nothing of dead owners. The figures go to
benchmarks/out/table.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from shmclaims import Handle, RowState, Segment

OUT = Path(__file__).parent / "out"
BATCH = 200  # operations in one measurement: more, and most are cut by the scheduler on a busy machine
OPERATIONS = ("lookup", "miss", "claim", "release")
AIM = "aim for a lookup hit: 2 us or less, and 0.8 of the file's time or less"
CONTENT = b"7 2 1700000000\n"  # what such a file would say: incarnation, index, time


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
        file = os.open(session, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self.folder)
        os.write(file, CONTENT)
        os.close(file)

    def read(self, session: bytes) -> bytes:
        file = os.open(session, os.O_RDONLY, dir_fd=self.folder)
        content = os.read(file, 64)
        os.close(file)
        return content

    def miss(self, session: bytes) -> None:
        with suppress(FileNotFoundError):
            os.open(session, os.O_RDONLY, dir_fd=self.folder)

    def unlink(self, session: bytes) -> None:
        os.unlink(session, dir_fd=self.folder)

    def claim(self, session: bytes) -> None:
        self.handles.append(self.table.try_claim(session, now=1_700_000_000.0))

    def release(self, _: bytes) -> None:
        self.table.try_release(self.handles.pop())

    def measure(self) -> dict[str, float]:
        """One round: {"table lookup": microseconds, "file lookup": ..., ...}."""
        known = random.sample(self.sessions, BATCH)
        fresh = new_sessions(BATCH)
        steps: list[list[tuple[str, Callable[[bytes], object], Sequence[bytes]]]] = [
            [("table lookup", self.table.lookup, known)],
            [("file lookup", self.read, known)],
            [("table miss", self.table.lookup, fresh)],
            [("file miss", self.miss, fresh)],
            [("table claim", self.claim, fresh), ("table release", self.release, fresh)],
            [("file claim", self.create, fresh), ("file release", self.unlink, fresh)],
        ]
        random.shuffle(steps)
        return {name: timed(operation, over) for step in steps for name, operation, over in step}


def new_sessions(count: int) -> list[bytes]:
    return [str(uuid.uuid4()).encode() for _ in range(count)]


def timed(operation: Callable[[bytes], object], sessions: Sequence[bytes]) -> float:
    """Microseconds of one operation, the mean of a batch."""
    began = time.perf_counter()
    for session in sessions:
        operation(session)
    return (time.perf_counter() - began) / len(sessions) * 1e6


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


def summary(rounds: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Quartiles of both ways and of the rounds' ratios, for each operation."""

    def quartiles(values: Sequence[float]) -> list[float]:
        return [round(value, 3) for value in statistics.quantiles(values, n=4)]

    return {
        operation: {
            "table_us": quartiles([one[f"table {operation}"] for one in rounds]),
            "file_us": quartiles([one[f"file {operation}"] for one in rounds]),
            "ratio": quartiles([one[f"table {operation}"] / one[f"file {operation}"] for one in rounds]),
        }
        for operation in OPERATIONS
    }


def show(found: dict[str, Any], console: Console) -> None:
    shown = Table(title="claim table beside claim files on tmpfs", caption=AIM)
    shown.add_column("operation")
    for column in ("table, us", "file, us", "table / file"):
        shown.add_column(column, justify="right")
    for operation in OPERATIONS:
        cells = []
        for key in ("table_us", "file_us", "ratio"):
            low, middle, high = found[operation][key]
            cells.append(f"{middle:.2f} ({low:.2f}-{high:.2f})")
        shown.add_row(operation, *cells)
    console.print(shown)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table", description="Claim table beside claim files.")
    parser.add_argument("--rounds", type=int, default=400, help="rounds of all operations (default: 400)")
    parser.add_argument("--max-sessions", type=int, default=50_000, help="size of the table (default: 50000)")
    options = parser.parse_args(arguments)
    with both_ways(options.max_sessions) as ways:
        ways.measure()  # warms caches and CPython's specializing interpreter; not counted
        rounds = [ways.measure() for _ in range(options.rounds)]
        claims = len(ways.sessions)
    found = summary(rounds)
    OUT.mkdir(exist_ok=True)
    where = {"python": platform.python_version(), "machine": platform.machine(), "processors": os.cpu_count()}
    size = {"claims": claims, "rounds": options.rounds, "batch": BATCH}
    (OUT / "table.json").write_text(json.dumps({**where, **size, "operations": found}, indent=2) + "\n")
    console = Console()
    show(found, console)
    console.print(
        f"Medians and quartiles of {options.rounds} rounds, {claims:,} claims, Python {platform.python_version()}; "
        f"figures in {OUT / 'table.json'}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
