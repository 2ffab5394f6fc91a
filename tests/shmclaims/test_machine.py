"""A Hypothesis state machine: the table against a dict, in any order of claims, deaths, sweeps and cut-off stores."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from model.herd import Herd

from shmclaims import AlreadyClaimed, ClaimGone, GoneSweep, Handle, RowState, TableFull, check
from shmclaims.layout import BUCKET

SESSIONS = [b"session-%03d" % number for number in range(150)]
session_names = st.sampled_from(SESSIONS)


@dataclass
class Known:
    """What the dict knows of a session."""

    worker: int
    user: int
    opened: int
    used: int
    handle: Handle


class TableMachine(RuleBasedStateMachine):
    """Four buckets in one stripe: small enough to fill, large enough that sessions have different candidates."""

    workers = Bundle("workers")

    @initialize()
    def make(self) -> None:
        self.herd = Herd(max_sessions=96, stripes=1)
        self.table = self.herd.segment.table
        self.sweep = GoneSweep(self.herd.segment)
        self.known: dict[bytes, Known] = {}
        self.live: set[int] = set()
        self.died: dict[int, int] = {}
        self.now = 1_700_000_000

    def teardown(self) -> None:
        if hasattr(self, "herd"):
            assert self.herd.close() == []

    @rule(target=workers, index=st.integers(0, 255))
    def start(self, index: int) -> int:
        worker = self.herd.register(index)
        self.live.add(worker)
        return worker

    @rule(worker=workers, state=st.sampled_from([RowState.BOOTING, RowState.DRAINING, RowState.STOPPING]))
    def change_state(self, worker: int, state: RowState) -> None:
        if worker in self.live:
            self.herd.segment.ring.set_state(worker, state)

    @rule(worker=consumes(workers))
    def die(self, worker: int) -> None:
        self.herd.segment.ring.mark_dead(worker, now=self.now)
        self.live.discard(worker)
        self.died[worker] = self.now

    @rule(seconds=st.integers(1, 100))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule(worker=workers, session=session_names, user=st.integers(0, 0xFFFFFFFF), replace=st.booleans())
    def claim(self, worker: int, session: bytes, user: int, replace: bool) -> None:
        self.play(worker)
        before = self.known.get(session)
        try:
            handle = self.table.try_claim(session, user=user, now=self.now, replace_gone=replace)
        except AlreadyClaimed as refused:
            assert before is not None
            assert before.worker in self.live
            assert (refused.claim.incarnation, refused.claim.user) == (before.worker, before.user)
        except ClaimGone as refused:
            assert before is not None
            assert not replace
            assert before.worker not in self.live
            assert refused.claim.incarnation == before.worker
        except TableFull:
            assert before is None
            assert all(known.worker in self.live for known in self.neighbours(session))
            assert len(self.neighbours(session)) == 2 * BUCKET
        else:
            assert before is None or (replace and before.worker not in self.live)
            self.forget(handle, session)
            self.known[session] = Known(worker, user, self.now, self.now, handle)

    @rule(worker=workers, data=st.data(), count=st.integers(1, 60))
    def claim_many(self, worker: int, data: st.DataObject, count: int) -> None:
        start = data.draw(st.integers(0, len(SESSIONS) - 1))
        for number in range(count):
            self.claim(worker, SESSIONS[(start + number) % len(SESSIONS)], number, replace=False)

    @rule(session=session_names)
    def release(self, session: bytes) -> None:
        known = self.known.get(session)
        if known is not None and known.worker in self.live:
            self.play(known.worker)
            assert self.table.try_release(known.handle)
            assert not self.table.try_release(known.handle)
            del self.known[session]

    @rule(session=session_names)
    def touch(self, session: bytes) -> None:
        known = self.known.get(session)
        if known is not None and known.worker in self.live:
            self.play(known.worker)
            assert self.table.touch(known.handle, now=self.now)
            known.used = self.now

    @rule(session=session_names)
    def killed_between_the_two_stores_of_a_release(self, session: bytes) -> None:
        known = self.known.get(session)
        if known is not None and known.worker in self.live:
            self.herd.segment.words[known.handle.slot] = 0
            del self.known[session]

    @rule(retention=st.integers(0, 100))
    def sweep_all(self, retention: int) -> None:
        due = {
            name
            for name, known in self.known.items()
            if self.died.get(known.worker, self.now + 1) <= self.now - retention
        }
        assert self.sweep.step(self.now, retention_seconds=retention, budget=1 << 20) == len(due)
        for name in due:
            del self.known[name]

    @invariant()
    def sound(self) -> None:
        if hasattr(self, "herd"):
            assert check(self.herd.segment) == []

    @invariant()
    def table_equals_dict(self) -> None:
        if not hasattr(self, "herd"):
            return
        for name in SESSIONS:
            claim, known = self.table.lookup(name), self.known.get(name)
            if known is None:
                assert claim is None
            else:
                assert claim is not None
                assert claim.state == ("live" if known.worker in self.live else "gone")
                assert (claim.incarnation, claim.user, claim.opened_at, claim.last_used_at) == (
                    known.worker,
                    known.user,
                    known.opened,
                    known.used,
                )
        assert {digest for digest, _ in self.table.dump()} == {self.table.digest(name).hex() for name in self.known}
        alive = sum(known.worker in self.live for known in self.known.values())
        assert self.table.count() == (alive, len(self.known) - alive, 96)

    def play(self, worker: int) -> None:
        self.herd.play(worker, self.herd.segment.words[self._index_word(worker)])

    @staticmethod
    def _index_word(worker: int) -> int:
        from shmclaims.layout import Row, row_word

        return row_word(worker) + Row.INDEX

    def neighbours(self, session: bytes) -> list[Known]:
        """What the dict knows to be in the session's two buckets."""
        start, size = self.table.geometry.slots_word, BUCKET * 8
        buckets = self.table.buckets_of(self.table.digest(session))
        return [known for known in self.known.values() if (known.handle.slot - start) // size in buckets]

    def forget(self, handle: Handle, session: bytes) -> None:
        """A recycled slot's former session was gone, and the least recently used of its two buckets."""
        if handle.recycled is None:
            assert handle.slot not in {known.handle.slot for known in self.known.values()}
            return
        (name,) = [name for name, known in self.known.items() if known.handle.slot == handle.slot]
        former = self.known[name]
        assert former.worker not in self.live
        assert handle.recycled.incarnation == former.worker
        if name != session:
            around = self.neighbours(session)
            assert len(around) == 2 * BUCKET
            assert former.used == min(known.used for known in around if known.worker not in self.live)
        del self.known[name]


TableMachine.TestCase.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestTable = pytest.mark.timeout(300)(TableMachine.TestCase)
