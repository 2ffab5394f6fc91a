"""Random SIGKILLs of busy workers, judged by an oracle: `python -m model.fuzz --seconds 5`; prints a report as JSON.

Six workers claim, release, touch and look up the same few hundred sessions; the supervisor kills one every few
milliseconds, stops some for a while, drains some, repairs, sweeps and starts new ones, as in service but faster.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass, replace

from model.mutants import MUTANTS
from model.oracle import COUNTERS, Oracle

from shmclaims import (
    AlreadyClaimed,
    ClaimGone,
    ClaimTimeout,
    GoneSweep,
    Handle,
    RowState,
    Segment,
    StripeCorrupt,
    StripeRepair,
    TableFull,
    check,
)

SUPERVISOR = 63  # index under which the supervisor's own violations are counted


@dataclass(frozen=True)
class Shape:
    """How large the table is, how many sessions there are, and whether gone records stay."""

    max_sessions: int
    stripes: int
    sessions: int
    sweeps: bool
    claim_seconds: float = 10.0


SHAPES = {
    "roomy": Shape(1536, 2, 700, sweeps=False),
    "crowded": Shape(96, 1, 180, sweeps=True),
}


def work(segment: Segment, oracle: Oracle, shape: Shape, index: int, incarnation: int, seed: int) -> None:
    """One worker's life; ends by SIGKILL or when the oracle says stop."""
    table = segment.table
    rand = random.Random(seed)
    mine: dict[int, Handle] = {}
    sequence = 0
    oracle.watch(segment, index, incarnation)
    while not oracle.stop[0]:
        session, dice = rand.randrange(shape.sessions), rand.random()
        name = b"session-%06d" % session
        now = int(time.time())
        if dice < 0.35:
            if session in mine:
                continue
            if dice < 0.2:  # killed in the middle of it, a replacement leaves the slot empty
                oracle.replacing[session] = oracle.notes[session]
            try:
                handle = table.claim(name, user=session, now=now, replace_gone=dice < 0.2, timeout=shape.claim_seconds)
            except AlreadyClaimed:
                oracle.count(index, "already")
            except ClaimGone:
                oracle.count(index, "gone")
            except TableFull:
                oracle.count(index, "full")
            else:
                sequence += 1
                oracle.claimed(index, session, incarnation, sequence)
                mine[session] = handle
                oracle.count(index, "claims")
                oracle.count(index, "recycled", handle.recycled is not None)
        elif dice < 0.62 and mine:
            session = next(iter(mine))
            oracle.notes[session] = 0
            if not table.release(mine.pop(session), timeout=shape.claim_seconds):
                oracle.violation(index, f"RELEASE of {session}: the slot was no longer {incarnation}'s")
            oracle.count(index, "releases")
        elif dice < 0.7 and mine:
            session = rand.choice(list(mine))
            if not table.touch(mine[session], now=now):
                oracle.violation(index, f"TOUCH of {session}: the slot was no longer {incarnation}'s")
            oracle.count(index, "touches")
        else:
            before = oracle.notes[session]
            claim = table.lookup(name)
            oracle.judge(index, session, before, claim, lambda name=name: table.lookup(name), kept=not shape.sweeps)  # type: ignore[misc]
            oracle.count(index, "lookups")
            if claim is not None:
                oracle.count(index, "live_hits" if claim.state == "live" else "gone_hits")


class Fuzz:
    """The supervisor's side."""

    def __init__(self, shape: Shape, workers: int, seed: int) -> None:
        self.shape = shape
        self.rand = random.Random(seed)
        self.oracle = Oracle(shape.sessions)
        self.segment = Segment.create({"server": "fuzz"}, max_sessions=shape.max_sessions, stripes=shape.stripes)
        self.repair = StripeRepair(self.segment)
        self._dawdle()
        self.sweep = GoneSweep(self.segment)
        self.workers = workers
        self.living: dict[int, tuple[int, int]] = {}
        self.stopped: dict[int, float] = {}
        self.kills = self.retired = 0
        self.repairs_seconds: list[float] = []
        self._repair_began: float | None = None
        self._left = [(0, time.monotonic())] * shape.stripes

    def _dawdle(self) -> None:
        """Between last look and verdict the supervisor may be descheduled as well: give the others that time."""
        finish = self.repair._finish

        def later(stripe: int) -> None:
            time.sleep(self.rand.random() * 0.001)
            finish(stripe)

        self.repair._finish = later  # type: ignore[method-assign]

    def start(self, index: int) -> None:
        incarnation = self.segment.ring.register(index, now=time.time())
        self.oracle.alive[incarnation] = 1
        seed = self.rand.randrange(1 << 30)
        pid = os.fork()
        if not pid:
            code = 1
            try:
                self.segment.table.bind(incarnation, index)
                work(self.segment, self.oracle, self.shape, index, incarnation, seed)
                code = 0
            except ClaimTimeout as error:
                self.oracle.violation(index, f"TIMEOUT {error}")
            except BaseException:
                self.oracle.exception(index)
            finally:
                os._exit(code)
        self.segment.ring.set_pid(incarnation, pid)
        self.segment.ring.set_state(incarnation, RowState.READY)
        self.living[pid] = index, incarnation

    def reap(self) -> None:
        while self.living:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            _, incarnation = self.living.pop(pid)
            self.stopped.pop(pid, None)
            self.oracle.alive[incarnation] = 0
            self.segment.ring.mark_dead(incarnation, now=time.time())
            self.oracle.alive[incarnation] = 2
            self.repair.begin(incarnation)

    def step_repair(self) -> None:
        now = time.monotonic()
        try:
            idle = self.repair.step(now) is None
        except StripeCorrupt as error:
            self.oracle.violation(SUPERVISOR, f"CORRUPT {error}")
            return
        if not idle and self._repair_began is None:
            self._repair_began = now
        elif idle and self._repair_began is not None:
            self.repairs_seconds.append(now - self._repair_began)
            self._repair_began = None

    def turn(self, pause: float) -> None:
        """One round of the supervisor, ended by a kill."""
        end = time.monotonic() + pause
        while True:
            self.reap()
            self.step_repair()
            now = time.monotonic()
            for pid, until in list(self.stopped.items()):
                if now >= until:
                    os.kill(pid, signal.SIGCONT)
                    del self.stopped[pid]
            if now >= end:
                break
            time.sleep(min(end - now, 0.0005))
        self.look_for_standstill()
        taken = {index for index, _ in self.living.values()}
        for index in range(self.workers):
            if index not in taken:
                self.start(index)
        dice, pid = self.rand.random(), self.rand.choice(list(self.living))
        if dice < 0.1 and pid not in self.stopped:
            os.kill(pid, signal.SIGSTOP)
            self.stopped[pid] = time.monotonic() + self.rand.uniform(0.002, 0.03)
        elif dice < 0.3:
            self.segment.ring.set_state(self.living[pid][1], RowState.DRAINING)
        if self.shape.sweeps and self.rand.random() < 0.2:
            self.retired += self.sweep.step(time.time() + 1, retention_seconds=0, budget=64)
        os.kill(self.victim(), signal.SIGKILL)
        self.kills += 1

    def victim(self) -> int:
        """Any worker; half of the time one that is just about to be inside, if there is one."""
        if self.rand.random() < 0.5:
            pids = {incarnation: pid for pid, (_, incarnation) in self.living.items()}
            for _ in range(50):
                for row, _ in self.segment.ring.intents():
                    pid = pids.get(self.segment.words[row] >> 8)
                    if pid is not None:
                        return pid
        return self.rand.choice(list(self.living))

    def look_for_standstill(self) -> None:
        """Workers live too short here to time out themselves."""
        for stripe, (count, since) in enumerate(self._left):
            now, left = time.monotonic(), self.oracle.leavings[stripe]
            if left != count or stripe in self.repair.pending:
                self._left[stripe] = left, now
            elif now - since > self.shape.claim_seconds:
                self.oracle.violation(SUPERVISOR, f"STANDSTILL nobody got into stripe {stripe} for {now - since:.1f} s")
                self._left[stripe] = left, now

    def end(self) -> None:
        """Stop half of them, kill the others, repair, and look at all that is left."""
        for pid in self.stopped:
            os.kill(pid, signal.SIGCONT)
        for pid in list(self.living)[::2]:
            os.kill(pid, signal.SIGKILL)
        self.oracle.stop[0] = 1
        deadline = time.monotonic() + 20
        while (self.living or self.repair.pending) and time.monotonic() < deadline:
            self.reap()
            self.step_repair()
            time.sleep(0.001)
            if self.oracle.total("violations") > 100:
                break
        for pid in list(self.living):
            self.oracle.violation(SUPERVISOR, f"STILL RUNNING {self.living[pid]}")
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for line in check(self.segment):
            self.oracle.violation(SUPERVISOR, f"CHECK {line}")
        self.segment.unlink()
        self.segment.close()

    def report(self) -> dict[str, object]:
        times = sorted(self.repairs_seconds) or [0.0]
        return {
            "kills": self.kills,
            "repaired": self.repair.repaired,
            "tokens_lost": self.repair.lost,
            "retired": self.retired,
            "repair_ms": {
                "median": round(times[len(times) // 2] * 1000, 2),
                "p99": round(times[len(times) * 99 // 100] * 1000, 2),
                "most": round(times[-1] * 1000, 2),
            },
            **{name: self.oracle.total(name) for name in COUNTERS},
            "first": self.oracle.violations()[:10],
        }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--kills", type=int, default=0, help="go on until so many, whatever the seconds")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--pause-ms", type=float, default=3, help="between two kills, at the mean")
    parser.add_argument("--shape", choices=SHAPES, default="roomy")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--claim-seconds", type=float, default=10)
    parser.add_argument("--mutant", choices=MUTANTS)
    parser.add_argument("--until-violation", action="store_true")
    options = parser.parse_args()
    if options.mutant:
        MUTANTS[options.mutant](setattr)
    shape = replace(SHAPES[options.shape], claim_seconds=options.claim_seconds)
    fuzz = Fuzz(shape, options.workers, options.seed)
    began = time.monotonic()
    try:
        while time.monotonic() - began < options.seconds or fuzz.kills < options.kills:
            fuzz.turn(fuzz.rand.random() * 2 * options.pause_ms / 1000)
            if options.until_violation and fuzz.oracle.total("violations"):
                break
    finally:
        fuzz.end()
    report = {"mutant": options.mutant, "shape": options.shape, "seed": options.seed, **fuzz.report()}
    print(json.dumps(report))
    return 1 if report["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
