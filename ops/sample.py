"""One look at a service's shared memory, for views that compare two of them: counters, states, claims.

A worker's counters start at 0 with its incarnation, so a rate is taken within one incarnation only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ops.dump import Views, places
from ops.service import process_state
from shmclaims.layout import SeatState
from shmclaims.segment import Segment
from shmclaims.workers import RowView, SeatView

EXITED = "exited"
"""The process has gone and the supervisor, which should have noticed, has not: it is stopped or stuck."""

STOPPED = "stopped"
"""A signal has stopped the process."""


@dataclass(frozen=True, slots=True)
class WorkerSample:
    """One seat and who is in it; what nobody has counted is 0. `heartbeat_age` in seconds, None: no beat yet."""

    index: int
    pid: int
    incarnation: int
    state: str
    restarts: int
    sessions: int = 0
    claims: int = 0
    in_flight: int = 0
    requests: int = 0
    relayed_out: int = 0
    relayed_in: int = 0
    connections: int = 0
    rss_bytes: int = 0
    heartbeat_age: float | None = None


@dataclass(frozen=True, slots=True)
class ServerSample:
    """One server. `live`, `gone`: claims in the table; `capacity`: how many sessions fit."""

    name: str
    bind: str
    workers: tuple[WorkerSample, ...]
    live: int
    gone: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Sample:
    """All servers, at `at` in monotonic seconds."""

    at: float
    servers: tuple[ServerSample, ...]


@dataclass(frozen=True, slots=True)
class Rates:
    """A second's worth of one worker, or of several together."""

    requests: float = 0.0
    relayed_out: float = 0.0
    relayed_in: float = 0.0

    def __add__(self, other: Rates) -> Rates:
        """Of both together."""
        return Rates(
            self.requests + other.requests,
            self.relayed_out + other.relayed_out,
            self.relayed_in + other.relayed_in,
        )


def take(views: Views, *, now: float, state_of: Callable[[int], str | None] = process_state) -> Sample:
    """Look once, at `now` in monotonic seconds; `state_of` gives the kernel's state of a pid."""
    gone = views.service.state == "dead"
    pid = views.service.supervisor_pid
    if pid is None or state_of(pid) is None:  # another container's: pids mean nothing here
        state_of = _unknown
    servers = (_server(name, segment, now, gone, state_of) for name, segment in views.segments.items())
    return Sample(now, tuple(servers))


def rates(before: Sample | None, after: Sample) -> dict[tuple[str, int], Rates] | None:
    """By server and incarnation; None when there is no earlier look. One that is new since then began at 0."""
    if before is None or after.at <= before.at:
        return None
    seconds = after.at - before.at
    known = {(server.name, worker.incarnation): worker for server in before.servers for worker in server.workers}
    found = {}
    for server in after.servers:
        for worker in server.workers:
            old = known.get((server.name, worker.incarnation))
            found[server.name, worker.incarnation] = Rates(
                _rate(worker.requests, old.requests if old else 0, seconds),
                _rate(worker.relayed_out, old.relayed_out if old else 0, seconds),
                _rate(worker.relayed_in, old.relayed_in if old else 0, seconds),
            )
    return found


def _unknown(_pid: int) -> str:
    return "?"


def _rate(after: int, before: int, seconds: float) -> float:
    return max(after - before, 0) / seconds


def _server(name: str, segment: Segment, now: float, gone: bool, state_of: Callable[[int], str | None]) -> ServerSample:
    live, dead, capacity = segment.table.count()
    workers = [_worker(seat, row, now, gone, state_of) for seat, row in places(segment)]
    if gone:  # no worker outlives its supervisor, whatever the rows say that it left
        live, dead = 0, live + dead
    return ServerSample(name, str(segment.info.get("bind")), tuple(workers), live, dead, capacity)


def _worker(
    seat: SeatView, row: RowView | None, now: float, gone: bool, state_of: Callable[[int], str | None]
) -> WorkerSample:
    state = seat.state.name.lower()
    if row is None or seat.state in (SeatState.BACKOFF, SeatState.FAILED):
        return WorkerSample(seat.index, 0, seat.incarnation, state, seat.restarts)
    if gone:
        state = "dead"
    elif row.pid:
        kernels = state_of(row.pid)
        if kernels in (None, "Z", "X"):
            state = EXITED
        elif kernels in ("T", "t"):
            state = STOPPED
    return WorkerSample(
        seat.index,
        row.pid,
        seat.incarnation,
        state,
        seat.restarts,
        row.sessions,
        row.claims,
        row.in_flight,
        row.requests,
        row.relayed_out,
        row.relayed_in,
        row.connections,
        row.rss_bytes,
        max(0.0, now - row.heartbeat_at / 1000) if row.heartbeat_at else None,
    )
