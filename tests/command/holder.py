"""A process that holds what a supervisor holds: the runtime folder's lock, a real segment with workers and claims.

Its workers are rows only. It tells its pid when it is ready and ends on SIGTERM, or when its stdin ends.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from shmclaims.layout import RowState, SeatState
from shmclaims.segment import Segment
from supervisor.runtime_dir import RuntimeDir

SESSIONS = {"alpha-00-0000-0001": 0, "alpha-00-0000-0002": 0, "beta-000-0000-0001": 1, "gone-000-0000-0001": 2}


def main(folder: str) -> None:
    """Hold everything until told to end."""
    runtime = RuntimeDir(folder)
    info = {"server": "counter", "bind": "127.0.0.1:4321", "version": "1", "supervisor_pid": os.getpid()}
    segment = Segment.create(info, max_sessions=100)
    ring, table = segment.ring, segment.table
    for index in (0, 1, 2):
        incarnation = ring.register(index, now=time.time())
        ring.set_pid(incarnation, 1000 + index)
        ring.set_state(incarnation, RowState.READY)
        ring.set_seat(index, SeatState.READY, incarnation=incarnation, restarts=0)
        table.bind(incarnation, index)
        own = ring.own(incarnation)
        own.set("sessions", sum(worker == index for worker in SESSIONS.values()))
        own.set("requests", 10 * (index + 1))
        own.set("relayed_out", index)
        own.set("rss_bytes", 50 * 2**20)
        own.beat(time.monotonic())
        for session, worker in SESSIONS.items():
            if worker == index:
                table.claim(session.encode(), now=1_800_000_000)
    ring.note_reason(3, "did not beat for 60 s")
    ring.mark_dead(3, now=1_800_000_100, status=-9)
    ring.set_seat(2, SeatState.BACKOFF, incarnation=3, restarts=4)
    state = {
        "pid": os.getpid(),
        "guardian": None,
        "started_at": 1_800_000_000.5,
        "version": "1.2.3",
        "segments": {"counter": segment.name},
        "config": None,
    }
    runtime.write_state(state)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(os.getpid(), flush=True)
    try:
        sys.stdin.read()
    finally:
        segment.unlink()
        runtime.close()


if __name__ == "__main__":
    main(sys.argv[1])
