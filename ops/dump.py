"""What shared memory says about a service, as the structures that `status --json` and `claims --json` print.

Nothing is asked of any process: the segments are mapped read-only, so this works on a supervisor that is stopped, stuck
or dead. What is read while it changes is at worst a moment old (shmclaims says why). Stripes are never taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Self

from ops.service import Service
from ops.times import iso
from shmclaims.claims import Claim, ClaimError
from shmclaims.layout import SeatState
from shmclaims.segment import Segment, SegmentError
from shmclaims.workers import RowView, SeatView

JsonObject = dict[str, Any]

COUNTERS = ("sessions", "in_flight", "requests", "relayed_out", "relayed_in")


class Views:
    """The segments of a service, mapped for reading. A context manager; `missing` names servers without a segment."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.segments: dict[str, Segment] = {}
        self.missing: dict[str, str] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for server, name in self.service.segments.items():
            try:
                segment = Segment.attach(name)
            except SegmentError as error:
                self.missing[server] = str(error)
            else:
                self._stack.callback(segment.close)
                self.segments[server] = segment
        return self

    def __exit__(self, *_: object) -> None:
        self.segments = {}
        self._stack.close()

    def status(self, *, now: float) -> JsonObject:
        """Supervisor, and for each server its workers and its table; `now` in monotonic seconds."""
        service = self.service
        return {
            "supervisor": {
                "pid": service.supervisor_pid,
                "started_at": iso(service.started_at),
                "version": service.version,
            },
            "servers": {name: _server(segment, now) for name, segment in self.segments.items()},
        }

    def claims(
        self,
        *,
        server: str | None = None,
        worker: int | None = None,
        state: str | None = None,
        session: str | None = None,
    ) -> Iterator[JsonObject]:
        """The claims that match; `session` is a whole session id, found through its keyed digest."""
        for name, segment in self.segments.items():
            if server not in (None, name):
                continue
            found = segment.table.dump() if session is None else _find(segment, session)
            for digest, claim in found:
                entry = self._claim(name, digest, claim)
                if worker in (None, entry["worker"]) and state in (None, entry["state"]):
                    yield entry

    def _claim(self, server: str, digest: str, claim: Claim) -> JsonObject:
        # No worker outlives its supervisor, whatever the rows say that it left.
        gone = self.service.state == "dead"
        return {
            "server": server,
            "session": claim.prefix or None,
            "digest": digest,
            "state": "gone" if gone else claim.state.value,
            "worker": claim.index,
            "incarnation": claim.incarnation,
            "opened_at": iso(claim.opened_at),
            "last_used_at": iso(claim.last_used_at),
        }


def _find(segment: Segment, session: str) -> Iterator[tuple[str, Claim]]:
    key = session.encode("utf-8", "surrogateescape")
    digest = segment.table.digest(key).hex()
    try:
        claim = segment.table.lookup(key)
    except (
        ClaimError,
        TypeError,
        IndexError,
    ):  # torn for so long that only the stripe could tell, and that is not ours to take
        yield from (entry for entry in segment.table.dump() if entry[0] == digest)
        return
    if claim is not None:
        yield digest, claim


def _server(segment: Segment, now: float) -> JsonObject:
    live, gone, capacity = segment.table.count()
    rows = {row.incarnation: row for row in segment.ring.rows()}
    return {
        "bind": segment.info.get("bind"),
        "workers": _workers(segment, rows, now),
        "claims": {"live": live, "gone": gone, "capacity": capacity},
    }


def _workers(segment: Segment, rows: dict[int, RowView], now: float) -> list[JsonObject]:
    """One entry for each seat, and one for each live worker beside it: a successor that boots, predecessors that drain.

    They have the index of their seat, and come right after it; `incarnation` tells them apart.
    """
    seats = {seat.index: seat for seat in segment.ring.seats() if seat.state != SeatState.EMPTY}
    seated = {seat.incarnation for seat in seats.values()}
    found = [_worker(seat, rows.get(seat.incarnation), now) for seat in seats.values()]
    for row in rows.values():
        if row.incarnation not in seated and segment.ring.is_live(row.incarnation):
            restarts = seats[row.index].restarts if row.index in seats else 0
            # The names of a live row's states are those of the seats' states.
            found.append(_worker(SeatView(row.index, SeatState[row.state.name], row.incarnation, restarts), row, now))
    return sorted(found, key=lambda worker: worker["index"])  # stable: the seat's own worker first


def _worker(seat: SeatView, row: RowView | None, now: float) -> JsonObject:
    """One entry of `workers`. What a dead incarnation counted is not its seat's: a seat without a process has zeros."""
    if seat.state in (SeatState.BACKOFF, SeatState.FAILED):
        row = None
    age = None if row is None or not row.heartbeat_at else max(0.0, round(now - row.heartbeat_at / 1000, 3))
    return {
        "index": seat.index,
        "pid": row.pid or None if row else None,
        "incarnation": seat.incarnation or None,
        "state": seat.state.name.lower(),
        **{counter: getattr(row, counter) if row else 0 for counter in COUNTERS},
        "restarts": seat.restarts,
        "heartbeat_age_seconds": age,
        "rss_bytes": row.rss_bytes or None if row else None,
    }
