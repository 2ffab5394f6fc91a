"""The servers' segments as the supervisor uses them: seats and rows shown, deaths noted, stripes repaired, old records
retired.

The supervisor is the only writer of seats and of rows' states. It takes a stripe only to retire records, and never
waits for one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shmclaims import (
    Claim,
    GoneSweep,
    Handle,
    RowState,
    SeatState,
    Segment,
    SegmentError,
    StripeCorrupt,
    StripeRepair,
)
from supervisor.config import ServerConfig
from supervisor.core import events
from supervisor.core.effects import ShowRow, ShowSeat
from supervisor.core.events import Worker
from supervisor.core.worker_state import State
from supervisor.errors import ShmError

logger = logging.getLogger("gym_supervise.supervisor")

LOOK_SECONDS = 0.25
"""Between two looks for intents that a live worker has abandoned; until then that worker takes no stripe."""

SWEEP_SECONDS = 1.0
SWEEP_SLOTS = 4096  # about a millisecond
NAMES_SECONDS = 10.0

SEAT_STATES = {
    State.EMPTY: SeatState.EMPTY,
    State.STARTING: SeatState.BOOTING,
    State.BOOTING: SeatState.BOOTING,
    State.READY: SeatState.READY,
    State.DRAINING: SeatState.DRAINING,
    State.STOPPING: SeatState.STOPPING,
    State.BACKOFF: SeatState.BACKOFF,
    State.FAILED: SeatState.FAILED,
}
ROW_STATES = {
    State.BOOTING: RowState.BOOTING,
    State.READY: RowState.READY,
    State.DRAINING: RowState.DRAINING,
    State.STOPPING: RowState.STOPPING,
}


@dataclass(slots=True)
class _Table:
    segment: Segment
    repair: StripeRepair
    sweep: GoneSweep
    retention_seconds: float | None
    stall_seconds: float
    repair_due: float = 0.0
    broken: bool = False
    names_missing: bool = False


class Segments:
    """One segment for each server. `now` is monotonic seconds; the ring's own times are wall time, for people."""

    def __init__(self) -> None:
        self._tables: dict[str, _Table] = {}
        self._sweep_due = self._names_due = 0.0

    def create(self, name: str, server: ServerConfig, info: Mapping[str, Any]) -> None:
        """Make a server's segment. Raises ShmError when shared memory cannot be had."""
        try:
            segment = Segment.create(info, max_sessions=server.claims.max_sessions)
        except SegmentError as error:
            raise ShmError(str(error)) from error
        self._tables[name] = _Table(
            segment,
            StripeRepair(segment),
            GoneSweep(segment, retired=lambda digest, claim: _log_retired(name, digest, claim)),
            server.claims.gone_retention_seconds,
            server.timeouts.stall_seconds,
        )

    def adopt(self, servers: Mapping[str, ServerConfig]) -> None:
        """Take from another config what can be changed while the service runs."""
        for name, server in servers.items():
            self._tables[name].retention_seconds = server.claims.gone_retention_seconds
            self._tables[name].stall_seconds = server.timeouts.stall_seconds

    def segment(self, server: str) -> Segment:
        """A server's segment."""
        return self._tables[server].segment

    def names(self) -> dict[str, str]:
        """The segments' names, by server."""
        return {server: table.segment.name for server, table in self._tables.items()}

    def open_sessions(self, server: str) -> int:
        """A server's open sessions, over all its live workers."""
        rows = self.segment(server).ring.rows()
        return sum(row.sessions for row in rows if row.state not in (RowState.FREE, RowState.DEAD))

    def register(self, server: str, index: int) -> Worker:
        """A new incarnation for a seat. Raises shmclaims.RingFull."""
        return Worker(server, index, self.segment(server).ring.register(index, now=time.time()))

    def set_pid(self, worker: Worker, pid: int) -> None:
        """Note a worker's pid in its row."""
        self.segment(worker.server).ring.set_pid(worker.incarnation, pid)

    def note_reason(self, worker: Worker, reason: str) -> None:
        """Note in a worker's row why it is about to be killed."""
        self.segment(worker.server).ring.note_reason(worker.incarnation, reason)

    def mark_gone(self, worker: Worker, status: int | None = None) -> int:
        """Turn a worker's row dead, with its exit status, and begin the repair of its stripes.

        Returns its open sessions.
        """
        table = self._tables[worker.server]
        table.segment.ring.mark_dead(worker.incarnation, now=time.time(), status=status)
        table.repair.begin(worker.incarnation)
        table.repair_due = 0.0
        row = table.segment.ring.row(worker.incarnation)
        return row.sessions if row is not None else 0

    def retire(self, server: str, handle: Handle) -> bool:
        """Retire one gone record on request. Raises shmclaims.StripeBusy; False: it is none any more."""
        return self._tables[server].sweep.retire(handle)

    def show_seat(self, effect: ShowSeat) -> None:
        """Write a seat's state."""
        ring = self.segment(effect.server).ring
        state = SEAT_STATES[effect.state]
        ring.set_seat(effect.index, state, incarnation=effect.incarnation, restarts=effect.restarts)

    def show_row(self, effect: ShowRow) -> None:
        """Write a live worker's state. Never for a dead one: the store would bring its claims back to life."""
        self.segment(effect.worker.server).ring.set_state(effect.worker.incarnation, ROW_STATES[effect.state])

    def step(self, now: float) -> list[events.StripeHeld | events.TableBroken]:
        """Do what is due, a little of it; returns what the fleet has to know."""
        found: list[events.StripeHeld | events.TableBroken] = []
        for server, table in self._tables.items():
            if now >= table.repair_due and not table.broken:
                found += self._repair(server, table, now)
        if now >= self._sweep_due:
            self._sweep_due = now + SWEEP_SECONDS
            for server, table in self._tables.items():
                self._sweep(server, table)
        if now >= self._names_due:
            self._names_due = now + NAMES_SECONDS
            self._check_names()
        return found

    def next_timer(self) -> float:
        """When to call `step`."""
        repairs = [table.repair_due for table in self._tables.values() if not table.broken]
        return min([*repairs, self._sweep_due, self._names_due])

    def close(self) -> None:
        """Remove all segments; no worker is left."""
        for table in self._tables.values():
            table.segment.unlink()
            table.segment.close()
        self._tables.clear()

    def _repair(self, server: str, table: _Table, now: float) -> list[events.StripeHeld | events.TableBroken]:
        try:
            due = table.repair.step(now)
        except StripeCorrupt as error:
            table.broken = True
            return [events.TableBroken(server, str(error))]
        table.repair_due = now + LOOK_SECONDS if due is None else min(due, now + LOOK_SECONDS)
        ring = table.segment.ring
        stuck = (ring.row(incarnation) for incarnation in table.repair.stuck(now, table.stall_seconds))
        return [
            events.StripeHeld(Worker(server, row.index, row.incarnation), table.stall_seconds)
            for row in stuck
            if row is not None
        ]

    def _sweep(self, server: str, table: _Table) -> None:
        try:
            table.sweep.step(time.time(), retention_seconds=table.retention_seconds, budget=SWEEP_SLOTS)
        except Exception:
            table.retention_seconds = None  # tidying up is no reason to lose what is tidy
            logger.exception("%s: records of gone sessions are kept from here on, since retiring one failed", server)

    def _check_names(self) -> None:
        for server, table in self._tables.items():
            if not table.names_missing and (missing := table.segment.missing_names()):
                table.names_missing = True
                logger.warning(
                    "%s: somebody has removed %s from /dev/shm; sessions are safe, but status and claims cannot be "
                    "read until the next start (a log-out does that: `loginctl enable-linger`)",
                    server,
                    ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else ""),
                )


def _log_retired(server: str, digest: str, claim: Claim) -> None:
    logger.info(
        "%s: the record of session %s... (digest %s), lost with worker %d, is retired: the id may start anew",
        server,
        claim.prefix,
        digest,
        claim.index,
        extra={"server": server},
    )
