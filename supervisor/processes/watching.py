"""Looks at the workers' rows: whose event loop has stopped beating, who has served or grown enough.

    beats again        silence 0
    on-time tick       silence + TICK_SECONDS
    late tick          silence 0, for all: it was the supervisor that did not run, and perhaps nobody did
    stall_seconds      the worker is asked for the stacks of its threads; then, at most STACKS_SECONDS later and if it
                       still does not beat, the fleet is told

So no clock is compared with another process's, and a machine that was paused, or a supervisor that was stopped, kills
nobody. Stacks come by `faulthandler`, whose handler needs neither the event loop nor the GIL, through a file in memory
that both sides have. Boots have a time-out of their own, and so has the end: only who serves is watched.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from shmclaims import RowState, RowView
from supervisor.configs import Configs
from supervisor.core import events
from supervisor.core.events import Worker
from supervisor.processes.hygiene import STACKS_SIGNAL
from supervisor.processes.spawn import Child
from supervisor.segments import Segments

logger = logging.getLogger("gym_supervise.supervisor")

TICK_SECONDS = 0.5
LATE_SECONDS = 0.5
STACKS_SECONDS = 2.0
STACKS_LOOK_SECONDS = 0.05
MAX_STACK_BYTES = 60_000
JITTER = 0.25
"""A worker's own limit is up to so much above max_requests: workers that were started together, and get the same share
of requests, do not all come to it at once."""

SERVING = (RowState.READY, RowState.DRAINING)


@dataclass(slots=True)
class _Pulse:
    """What is known of one worker's heart. `seconds` is the silence; stacks are asked for when `until` is set."""

    beat: int
    seconds: float = 0.0
    until: float | None = None
    start: int = 0
    size: int = 0


class Watch:
    """All workers of all servers. Times are monotonic seconds.

    Args:
        segments: where the rows are.
        live: the workers that run, and how they are reached.
        configs: says how long a silence, and how much, is too much.

    """

    def __init__(self, segments: Segments, live: Callable[[], Mapping[Worker, Child]], configs: Configs) -> None:
        self._segments = segments
        self._live = live
        self._configs = configs
        self._pulses: dict[Worker, _Pulse] = {}
        self._due = 0.0
        self._look_at: float | None = None  # when stacks that were asked for may have come

    def step(self, now: float) -> list[events.WorkerStalled | events.RecycleDue]:
        """Do what is due."""
        found: list[events.WorkerStalled | events.RecycleDue] = []
        if now >= self._due:
            late = now - self._due > LATE_SECONDS
            self._due = now + TICK_SECONDS
            self._pulses = {worker: pulse for worker, pulse in self._pulses.items() if worker in self._live()}
            for worker, child in self._live().items():
                found += self._tick(worker, child, now, late=late)
        asked = [(worker, pulse) for worker, pulse in self._pulses.items() if pulse.until is not None]
        for worker, pulse in asked if self._look_at is not None and now >= self._look_at else ():
            found += self._look_for_stacks(worker, pulse, now)
        self._look_at = now + STACKS_LOOK_SECONDS if asked else None
        return found

    def next_timer(self) -> float:
        """When to call `step`."""
        return self._due if self._look_at is None else min(self._due, self._look_at)

    def _tick(
        self, worker: Worker, child: Child, now: float, *, late: bool
    ) -> list[events.WorkerStalled | events.RecycleDue]:
        row = self._segments.segment(worker.server).ring.row(worker.incarnation)
        if row is None or row.state not in SERVING:
            self._pulses.pop(worker, None)
            return []
        pulse = self._pulses.setdefault(worker, _Pulse(row.heartbeat))
        if late or row.heartbeat != pulse.beat:
            pulse.beat, pulse.seconds = row.heartbeat, 0.0
        else:
            pulse.seconds += TICK_SECONDS
        stall_seconds = self._configs.current.servers[worker.server].timeouts.stall_seconds
        if pulse.seconds >= stall_seconds and pulse.until is None:
            pulse.start = pulse.size = os.fstat(child.stacks).st_size
            pulse.until = now + STACKS_SECONDS
            child.signal(STACKS_SIGNAL)
        reason = self._too_much(worker, row) if row.state is RowState.READY else None
        return [] if reason is None else [events.RecycleDue(worker, reason)]

    def _look_for_stacks(self, worker: Worker, pulse: _Pulse, now: float) -> list[events.WorkerStalled]:
        child = self._live().get(worker)
        row = self._segments.segment(worker.server).ring.row(worker.incarnation)
        if child is None or row is None or row.state not in SERVING or pulse.until is None:
            return []
        size = os.fstat(child.stacks).st_size
        written = size > pulse.start and size == pulse.size
        pulse.size = size
        if not written and now < pulse.until:
            return []
        pulse.until = None
        stacks = os.pread(child.stacks, MAX_STACK_BYTES, pulse.start).decode("utf-8", "replace")
        seconds, pulse.seconds = pulse.seconds, 0.0
        if row.heartbeat == pulse.beat and seconds:
            return [events.WorkerStalled(worker, seconds, row.sessions, stacks)]
        logger.warning(
            "%s: worker %d, pid %d, had hung and goes on; its threads were:\n%s",
            worker.server, worker.index, child.pid, stacks.rstrip(),
        )  # fmt: skip
        return []

    def _too_much(self, worker: Worker, row: RowView) -> str | None:
        recycle = self._configs.current.servers[worker.server].recycle
        if recycle.max_requests is not None:
            served = row.requests + row.relayed_in - row.relayed_out
            if served >= request_limit(recycle.max_requests, worker.incarnation):
                return f"it has served {served} requests (recycle.max_requests {recycle.max_requests})"
        if recycle.max_rss_mib is not None and row.rss_bytes >= recycle.max_rss_mib * 2**20:
            grown = row.rss_bytes // 2**20
            return f"it has grown to {grown} MiB (recycle.max_rss_mib {recycle.max_rss_mib})"
        return None


def request_limit(max_requests: int, incarnation: int) -> float:
    """How many requests that worker may serve: the same whenever it is asked."""
    return max_requests * (1.0 + JITTER * Random(incarnation).random())  # noqa: S311 - spreads, hides nothing
