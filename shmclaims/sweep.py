"""Retires the records of gone sessions when their time is up; in the supervisor only.

It looks without a lock, a few buckets at a call, and empties a slot only under its stripe and after a second look. It
never waits for a stripe: the holder may be dead, and this process is the one that repairs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import posix_ipc

from shmclaims.claims import Claim, Handle, StripeBusy
from shmclaims.layout import BUCKET, BUCKET_TAG_BYTES, LOW_HALF, OWNER_WORD, SLOT_WORDS, TAGS_OFFSET

if TYPE_CHECKING:
    from shmclaims.segment import Segment


class GoneSweep:
    """A cursor over the whole table.

    Args:
        segment: the supervisor's own
        retired: told (digest in hex, claim) of every record that is retired, since from then on its id can start empty

    """

    def __init__(self, segment: Segment, *, retired: Callable[[str, Claim], None] | None = None) -> None:
        self._words = segment.words
        self._ring = segment.ring
        self._stripes = segment.stripes
        self._table = segment.table
        self._retired = retired
        self._cursor = 0  # bucket
        self._gone_since: dict[int, float] = {}  # incarnation -> wall seconds; the ring forgets rows that are reused
        self._seen: set[int] = set()  # gone incarnations met in this round

    def step(self, now: float, *, retention_seconds: float | None, budget: int) -> int:
        """Look at some slots; retire the records that have been gone for `retention_seconds` (None: keep all).

        Tags that killed workers left on empty slots are cleared on the way.

        Args:
            now: wall seconds
            retention_seconds: since the owner's death
            budget: how many slots, rounded up to buckets; the next call goes on behind them

        Returns:
            how many records were retired

        """
        geometry = self._table.geometry
        died_before = -1.0 if retention_seconds is None else now - retention_seconds
        count = 0
        for _ in range(min(-(-budget // BUCKET), geometry.slots // BUCKET)):
            count += self._bucket(self._cursor, died_before, now)
            self._cursor += 1
            if self._cursor == geometry.slots // BUCKET:
                self._cursor = 0
                self._gone_since = {one: self._gone_since[one] for one in self._seen}
                self._seen = set()
        return count

    def retire(self, handle: Handle) -> bool:
        """Retire one gone record now, whatever its age. Tried once: raises StripeBusy.

        Returns:
            False: the slot is no longer the handle's, or its worker lives

        """
        words = self._words
        if words[handle.slot] != handle.control or self._ring.is_live(words[handle.slot + OWNER_WORD] & LOW_HALF):
            return False
        if self._retire(handle.stripe, [(handle.slot, handle.control)], []):
            return True
        if words[handle.slot] == handle.control:
            raise StripeBusy(f"stripe {handle.stripe} is held or in repair")
        return False

    def _bucket(self, bucket: int, died_before: float, now: float) -> int:
        words, table = self._words, self._table
        start = table.geometry.slots_word + bucket * BUCKET * SLOT_WORDS
        controls = words[start : start + BUCKET * SLOT_WORDS : SLOT_WORDS].tolist()
        due, stale = [], []
        for number, (control, tag) in enumerate(
            zip(controls, table.tags_at(TAGS_OFFSET + bucket * BUCKET_TAG_BYTES), strict=True)
        ):
            slot = start + number * SLOT_WORDS
            if control:
                owner = words[slot + OWNER_WORD] & LOW_HALF
                if not self._ring.is_live(owner) and self._died_at(owner, now) <= died_before:
                    due.append((slot, control))
            elif tag:
                stale.append(slot)
        return self._retire(bucket // table.geometry.buckets_a_stripe, due, stale) if due or stale else 0

    def _died_at(self, owner: int, now: float) -> float:
        self._seen.add(owner)
        if owner not in self._gone_since:
            row = self._ring.row(owner)
            self._gone_since[owner] = row.died_at if row is not None else now
        return self._gone_since[owner]

    def _retire(self, stripe: int, due: list[tuple[int, int]], stale: list[int]) -> int:
        words, semaphore = self._words, self._stripes.semaphores[stripe]
        if self._stripes.flagged(stripe):
            return 0
        try:
            semaphore.acquire(0)
        except posix_ipc.BusyError:
            return 0
        retired = []
        try:
            for slot, control in due:
                if words[slot] == control and not self._ring.is_live(words[slot + OWNER_WORD] & LOW_HALF):
                    retired.append(self._table.read_slot(slot))
                    words[slot] = 0
                    self._table.clear_tag(slot)
            for slot in stale:
                if not words[slot]:
                    self._table.clear_tag(slot)
        finally:
            semaphore.release()
        for record in retired:
            if record is not None and self._retired is not None:
                self._retired(*record)
        return len(retired)
