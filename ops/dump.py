"""What shared memory says about a service, as the structures that `status --json` and `claims --json` print.

Nothing is asked of any process: the segments are mapped read-only, so this works on a supervisor that is stopped, stuck
or dead. What is read while it changes is at worst a moment old (shmclaims says why). Stripes are never taken.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Self

from ops.service import Service
from ops.times import iso
from ops.words import exit_words
from shmclaims.claims import Claim
from shmclaims.layout import SeatState
from shmclaims.segment import Segment, SegmentError
from shmclaims.workers import RowView, SeatView

JsonObject = dict[str, Any]

OWNER_FACTS = ("pid", "started_at", "died_at", "exit", "reason", "heartbeat_age_seconds")
DIGEST = re.compile(r"[0-9a-fA-F]{32}")
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
        """The claims that match; `session` is a whole session id, or a digest as it is shown."""
        for name, segment in self.segments.items():
            if server not in (None, name):
                continue
            found = segment.table.dump() if session is None else find(segment, session)
            for digest, claim in found:
                entry = self._claim(name, digest, claim)
                if session is not None:
                    entry["owner"] = owner(segment, claim, now=time.monotonic(), dead=self.service.state == "dead")
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


def find(segment: Segment, session: str) -> Iterator[tuple[str, Claim]]:
    """(digest in hex, claim) of a session id, and if nobody claims that, of a digest in hex."""
    table = segment.table
    digests = [table.digest(session.encode("utf-8", "surrogateescape"))]
    if DIGEST.fullmatch(session):
        digests.append(bytes.fromhex(session))
    for digest in digests:
        if (found := table.find(digest)) is not None:
            yield digest.hex(), found[1]
            return


def owner(segment: Segment, claim: Claim, *, now: float, dead: bool) -> JsonObject:
    """Who holds, or held, a claim, as far as shared memory tells; what it does not tell is None.

    Args:
        segment: the claim's
        claim: whose
        now: monotonic seconds
        dead: the supervisor has died, and with it every worker

    """
    row = segment.ring.row(claim.incarnation)
    if row is None:  # more than 255 workers have been started since
        return {"state": "dead", **dict.fromkeys(OWNER_FACTS)}
    status = row.exit_status
    return {
        "state": "dead" if dead else row.state.name.lower(),
        "pid": row.pid or None,
        "started_at": iso(row.started_at),
        "died_at": iso(row.died_at),
        "exit": None if status is None else exit_words(status),
        "reason": row.reason or None,
        "heartbeat_age_seconds": max(0.0, round(now - row.heartbeat_at / 1000, 3)) if row.heartbeat_at else None,
    }


def places(segment: Segment) -> list[tuple[SeatView, RowView | None]]:
    """Every seat with the row of who is in it, and each live worker beside one: a successor that boots, predecessors
    that drain. They have the index of their seat and come right after it; `incarnation` tells them apart.
    """
    rows = {row.incarnation: row for row in segment.ring.rows()}
    seats = {seat.index: seat for seat in segment.ring.seats()}
    seated = {seat.incarnation for seat in seats.values()}
    found: list[tuple[SeatView, RowView | None]] = [(seat, rows.get(seat.incarnation)) for seat in seats.values()]
    for row in rows.values():
        if row.incarnation not in seated and segment.ring.is_live(row.incarnation):
            restarts = seats[row.index].restarts if row.index in seats else 0
            # The names of a live row's states are those of the seats' states.
            found.append((SeatView(row.index, SeatState[row.state.name], row.incarnation, restarts), row))
    return sorted(found, key=lambda place: place[0].index)  # stable: the seat's own worker first


def _server(segment: Segment, now: float) -> JsonObject:
    live, gone, capacity = segment.table.count()
    return {
        "bind": segment.info.get("bind"),
        "workers": [_worker(seat, row, now) for seat, row in places(segment)],
        "claims": {"live": live, "gone": gone, "capacity": capacity},
    }


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
