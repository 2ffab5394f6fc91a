"""SIGKILL before every bytecode of claim and release, alone and beside a live rival on the same stripe."""

from __future__ import annotations

import mmap
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from model.herd import Herd, Worker, until
from model.mutants import MUTANTS
from model.strike import Strike, die

from shmclaims import DamagedSlot, GoneSweep, Handle, Segment, StripeBusy, StripeCorrupt, check
from shmclaims.layout import Row, row_word

NOW = 1_700_000_000
FINISHED = 2

Op = Callable[[Segment, Handle | None], object]


def claim(segment: Segment, _: Handle | None) -> object:
    while True:
        try:
            return segment.table.try_claim(b"session", now=NOW, replace_gone=True)
        except StripeBusy:
            pass


def release(segment: Segment, handle: Handle | None) -> object:
    assert handle is not None
    while True:
        try:
            return segment.table.try_release(handle)
        except StripeBusy:
            pass


@dataclass(frozen=True)
class Found:
    """What the supervisor finds after the death: the repair table's columns."""

    intent: bool
    token: int
    slot: str


@dataclass(frozen=True)
class Case:
    name: str
    op: Op
    prepared: str  # what the table holds before: "", "own" (the victim's claim), "gone" (a dead worker's)
    points: int  # at least so many bytecodes
    states: list[Found]  # alone, in the order of the bytecodes; the same state twice in a row is one


CASES = [
    Case(
        "claim",
        claim,
        "",
        350,
        [
            Found(False, 1, "empty"),
            Found(True, 1, "empty"),
            Found(True, 0, "empty"),
            Found(True, 0, "gone"),
            Found(True, 1, "gone"),
            Found(False, 1, "gone"),
        ],
    ),
    Case(
        "claim over a gone record",
        claim,
        "gone",
        350,
        [
            Found(False, 1, "gone before"),
            Found(True, 1, "gone before"),
            Found(True, 0, "gone before"),
            Found(True, 0, "empty"),
            Found(True, 0, "gone"),
            Found(True, 1, "gone"),
            Found(False, 1, "gone"),
        ],
    ),
    Case(
        "release",
        release,
        "own",
        120,
        [
            Found(False, 1, "gone"),
            Found(True, 1, "gone"),
            Found(True, 0, "gone"),
            Found(True, 0, "empty"),
            Found(True, 1, "empty"),
            Found(False, 1, "empty"),
        ],
    ),
]


class Ground:
    """A herd, a sweep, and words that victims and rival write their progress to."""

    def __init__(self, herd: Herd) -> None:
        self.herd = herd
        self.sweep = GoneSweep(herd.segment)
        self.shared = mmap.mmap(-1, 4096)
        self.words = memoryview(self.shared).cast("Q")  # 0 the rival's rounds, 1 stop, 2 the victim's phase

    def victim(self, case: Case, at: int) -> Worker:
        def body(segment: Segment) -> None:
            handle = segment.table.claim(b"session", now=NOW) if case.prepared == "own" else None
            with Strike(at, die):
                case.op(segment, handle)
                self.words[2] = FINISHED

        if case.prepared == "gone":
            before = self.herd.register(7)
            self.herd.play(before, 7)
            self.herd.segment.table.claim(b"session", now=NOW)
            self.herd.segment.ring.mark_dead(before, now=NOW)
        self.words[2] = 0
        return self.herd.fork(body, index=2)

    def rival(self) -> Worker:
        def body(segment: Segment) -> None:
            table, me, number = segment.table, segment.table._incarnation, 0
            while not self.words[1]:
                number += 1
                name = f"rival-{number % 20}".encode()
                handle = table.claim(name, now=NOW)
                seen = table.lookup(name)
                assert seen is not None
                assert seen.incarnation == me
                assert table.release(handle)
                self.words[0] = number

        return self.herd.fork(body, index=1)

    def slot(self, worker: Worker) -> str:
        claim = self.herd.segment.table.lookup(b"session")
        if claim is None:
            return "empty"
        assert claim.state == "gone"
        return "gone" if claim.incarnation == worker.incarnation else "gone before"

    def empty(self) -> None:
        def swept() -> bool:
            self.sweep.step(time.time() + 10, retention_seconds=0, budget=1 << 20)
            return self.herd.segment.table.lookup(b"session") is None

        until(swept, "the gone record to be swept")


def strike_everywhere(ground: Ground, case: Case, *, alone: bool, first: int = 1) -> tuple[int, list[Found]]:
    """Kill before the 1st, 2nd, ... bytecode until the operation outlives the count; returns (points, states)."""
    herd = ground.herd
    states: list[Found] = []
    at = first - 1
    while True:
        at += 1
        worker = ground.victim(case, at)
        status = herd.bury(worker)
        finished = ground.words[2] == FINISHED
        assert finished or os.WTERMSIG(status) == signal.SIGKILL
        intent = bool(herd.segment.words[row_word(worker.incarnation) + Row.INTENT])
        found = Found(intent, herd.segment.stripes.semaphores[0].value if alone else -1, ground.slot(worker))
        lost = herd.repair.lost
        herd.repair_all()
        if alone:
            assert herd.segment.stripes.semaphores[0].value == 1
            assert herd.repair.lost - lost == (found.token == 0)
            assert check(herd.segment) == []
        assert ground.slot(worker) == found.slot
        if finished:
            assert (found.intent, found.slot) == (False, "empty" if case.name == "release" else "gone")
        if not states or states[-1] != found:
            states.append(found)
        ground.empty()
        if finished:
            return at - 1, states


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_killed_alone(herd: Herd, case: Case) -> None:
    """Every bytecode is a kill point; what is found are the repair table's rows in order, and each is repaired."""
    points, states = strike_everywhere(Ground(herd), case, alone=True)
    assert points >= case.points
    assert states == case.states


@pytest.mark.parametrize("case", CASES[::2], ids=[case.name for case in CASES[::2]])
def test_killed_beside_a_rival(herd: Herd, case: Case) -> None:
    """A live worker that claims and releases on the same stripe goes on after every kill, and is never robbed."""
    ground = Ground(herd)
    rival = ground.rival()
    until(lambda: ground.words[0], "the rival's first round")
    points, _ = strike_everywhere(ground, case, alone=False)
    assert points >= case.points
    rounds = ground.words[0]
    until(lambda: ground.words[0] > rounds + 3, "the rival to go on")
    ground.words[1] = 1
    assert herd.bury(rival) == 0


@pytest.mark.parametrize("mutant", ["clear-before-post", "commit-before-body"])
def test_the_kill_points_see(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two wrong orders of stores, which the fuzz meets only by luck, fail here every time."""
    MUTANTS[mutant](monkeypatch.setattr)
    herd = Herd()
    try:
        with pytest.raises((AssertionError, DamagedSlot, StripeBusy)):
            strike_everywhere(Ground(herd), CASES[0], alone=True, first=300)
    finally:
        herd.close()


def test_the_kill_points_see_a_missing_flag_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rival that ignores the flag gets in between the supervisor's last look and its post: two tokens."""
    MUTANTS["no-flag-check"](monkeypatch.setattr)
    herd = Herd()
    ground = Ground(herd)
    finish = herd.repair._finish

    def later(stripe: int) -> None:
        time.sleep(0.0005)  # descheduled, as it may be
        finish(stripe)

    monkeypatch.setattr(herd.repair, "_finish", later)
    try:
        ground.rival()
        until(lambda: ground.words[0], "the rival's first round")
        with pytest.raises(StripeCorrupt):
            for _ in range(20):
                strike_everywhere(ground, CASES[0], alone=False, first=150)
    finally:
        for worker in list(herd.workers.values()):
            herd.kill(worker, begin=False)
        while herd.segment.stripes.semaphores[0].value > 1:
            herd.segment.stripes.semaphores[0].acquire(0)
        herd.close()
