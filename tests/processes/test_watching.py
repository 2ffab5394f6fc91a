"""The watch over the workers' rows, on paper time: real rows, real descriptors, no processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from shmclaims import RowState, Segment
from supervisor.config import Config, Recycle, ServerConfig, Timeouts
from supervisor.configs import Configs
from supervisor.core import events
from supervisor.core.events import Worker
from supervisor.processes.hygiene import STACKS_SIGNAL
from supervisor.processes.watching import JITTER, STACKS_SECONDS, TICK_SECONDS, Watch, request_limit


@dataclass
class Child:
    """A worker as the watch sees it; `stacks` is written as its handler would, when `answers`."""

    pid: int = 7
    answers: bytes = b"Current thread\n  File x.py, line 3 in hang\n"
    signals: list[int] = field(default_factory=list)
    stacks: int = field(default_factory=lambda: os.memfd_create("test"))

    def signal(self, number: int) -> None:
        """Note the signal, and write."""
        self.signals.append(number)
        os.write(self.stacks, self.answers)


class Ward:
    """One worker under watch, and a clock."""

    def __init__(self, segment: Segment, **server: object) -> None:
        self.segment = segment
        incarnation = segment.ring.register(0, now=0)
        segment.ring.set_state(incarnation, RowState.READY)
        self.row = segment.ring.own(incarnation)
        self.worker = Worker("app", 0, incarnation)
        self.child = Child()
        config = Config(name="x", runtime_dir=Path("/x"), servers={"app": ServerConfig(app="m:app", **server)})  # type: ignore[arg-type]
        segments = SimpleNamespace(segment=lambda _: segment)
        self.watch = Watch(segments, lambda: {self.worker: self.child}, Configs(config))  # type: ignore[arg-type,dict-item]
        self.now = 1000.0
        self.pass_ticks(1)

    def pass_ticks(self, number: int, *, beating: bool = False) -> list[object]:
        """On-time ticks."""
        found: list[object] = []
        for _ in range(number):
            if beating:
                self.row.beat(self.now)
            self.now = max(self.watch.next_timer(), self.now)
            found += self.watch.step(self.now)
        return found

    def pause(self, seconds: float) -> list[object]:
        """The supervisor does not run for so long."""
        self.now += seconds
        return list(self.watch.step(self.now))


@pytest.fixture
def segment() -> Iterator[Segment]:
    """A table."""
    made = Segment.create({}, max_sessions=100)
    yield made
    made.unlink()
    made.close()


def test_a_silence_of_stall_seconds_is_told_with_the_stacks(segment: Segment) -> None:
    """Counted tick by tick: not before, and once; the stacks are what was written after the signal."""
    ward = Ward(segment, timeouts=Timeouts(stall_seconds=5.0))
    ward.row.set("sessions", 4)
    assert ward.pass_ticks(9) == []
    assert ward.child.signals == []
    assert ward.pass_ticks(1) == []
    assert ward.child.signals == [STACKS_SIGNAL]
    found = ward.pass_ticks(2)
    assert found == [events.WorkerStalled(ward.worker, 5.0, 4, ward.child.answers.decode())]
    assert ward.now < 1000.0 + 10 * TICK_SECONDS + STACKS_SECONDS


def test_stacks_that_do_not_come_are_waited_for_a_moment_only(segment: Segment) -> None:
    """A stopped worker writes nothing."""
    ward = Ward(segment, timeouts=Timeouts(stall_seconds=5.0))
    ward.child.answers = b""
    ward.pass_ticks(10)
    began, found = ward.now, list[object]()
    while not found:
        found = ward.pass_ticks(1)
    assert found == [events.WorkerStalled(ward.worker, 5.0 + STACKS_SECONDS, 0, "")]
    assert STACKS_SECONDS <= ward.now - began < STACKS_SECONDS + 2 * TICK_SECONDS


def test_twenty_seconds_are_no_stall_at_the_default(segment: Segment) -> None:
    """Nor twice twenty, with a beat in between."""
    ward = Ward(segment)
    for _ in range(4):
        assert ward.pass_ticks(40) == []
        ward.pass_ticks(1, beating=True)
    assert ward.child.signals == []


def test_a_late_tick_starts_the_count_anew(segment: Segment) -> None:
    """Whoever did not run cannot say that others did not; what was silent before may have been paused with us."""
    ward = Ward(segment, timeouts=Timeouts(stall_seconds=5.0))
    for _ in range(5):
        ward.pass_ticks(8)
        assert ward.pause(3600.0) == []
    assert ward.child.signals == []
    ward.pass_ticks(9)
    assert ward.child.signals == []
    ward.pass_ticks(1)
    assert ward.child.signals == [STACKS_SIGNAL]


def test_one_that_goes_on_while_its_stacks_are_read_lives(segment: Segment, caplog: pytest.LogCaptureFixture) -> None:
    """It is only said that it had hung, and where."""
    ward = Ward(segment, timeouts=Timeouts(stall_seconds=5.0))
    ward.pass_ticks(10)
    ward.row.beat(ward.now)
    assert ward.pass_ticks(3) == []
    assert "had hung and goes on" in caplog.text
    assert "in hang" in caplog.text


@pytest.mark.parametrize("state", [RowState.BOOTING, RowState.STOPPING])
def test_only_who_serves_is_watched(segment: Segment, state: RowState) -> None:
    """Boot and end have times of their own."""
    ward = Ward(segment, timeouts=Timeouts(stall_seconds=5.0))
    segment.ring.set_state(ward.worker.incarnation, state)
    assert ward.pass_ticks(100) == []
    assert ward.child.signals == []


def test_requests_are_those_that_it_has_served_itself(segment: Segment) -> None:
    """What it relayed to others is theirs; said at each tick, while it is ready."""
    ward = Ward(segment, recycle=Recycle(max_requests=100))
    limit = request_limit(100, ward.worker.incarnation)
    ward.row.set("requests", 1000)
    ward.row.set("relayed_out", 950)
    ward.row.set("relayed_in", int(limit) - 50)
    assert ward.pass_ticks(1, beating=True) == []
    ward.row.add("relayed_in", 1)
    for _ in range(2):
        (due,) = ward.pass_ticks(1, beating=True)
        assert isinstance(due, events.RecycleDue)
        assert due.reason == f"it has served {int(limit) + 1} requests (recycle.max_requests 100)"
    segment.ring.set_state(ward.worker.incarnation, RowState.DRAINING)
    assert ward.pass_ticks(1, beating=True) == []


def test_memory(segment: Segment) -> None:
    """In MiB."""
    ward = Ward(segment, recycle=Recycle(max_rss_mib=200))
    ward.row.set("rss_bytes", (200 << 20) - 1)
    assert ward.pass_ticks(1, beating=True) == []
    ward.row.set("rss_bytes", 200 << 20)
    (due,) = ward.pass_ticks(1, beating=True)
    assert isinstance(due, events.RecycleDue)
    assert due.reason == "it has grown to 200 MiB (recycle.max_rss_mib 200)"


def test_limits_are_spread() -> None:
    """Never below what is configured, up to a quarter above; the same whenever it is asked; not all alike."""
    limits = [request_limit(1000, incarnation) for incarnation in range(1, 101)]
    assert all(1000 <= limit <= 1000 * (1 + JITTER) for limit in limits)
    assert limits == [request_limit(1000, incarnation) for incarnation in range(1, 101)]
    assert max(limits) - min(limits) > 200
    assert len({round(limit) for limit in limits}) > 50
