"""The claim table: which worker owns which session.

Who writes what: a slot's words 0-6 and its tag, a worker under the slot's stripe, and only into a slot that is empty
or whose owner is gone (the supervisor's sweep empties gone ones, under the stripe too); `last used`, the owner,
without a lock.

Order of the stores of a claim: control = 0, body, last used, tag, control. A worker that is killed between two of them
leaves an empty slot, or a whole claim that is gone. `reader` says why nobody needs a lock to read.

Rejected: chains and robin-hood probing (an entry that moves is a multi-slot repair), blocking on the semaphore (lost
wake-up), a sequence lock (needs fences that pure Python has not), a holder word per stripe (one more state; resolves
none).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from itertools import count
from mmap import mmap
from zlib import crc32

from shmclaims.claims import (
    AlreadyClaimed,
    Claim,
    ClaimError,
    ClaimGone,
    ClaimState,
    ClaimTimeout,
    DamagedSlot,
    Handle,
    StripeBusy,
    TableFull,
)
from shmclaims.entrance import Entrance, Entry
from shmclaims.layout import (
    BODY,
    BUCKET,
    LIVE,
    LOW_HALF,
    MAX_LENGTH,
    MAX_VERSION,
    OWNER_WORD,
    SLOT_WORDS,
    TAG_SIZE,
    USED_WORD,
    Geometry,
    prefix_of,
)
from shmclaims.reader import TORN_READS, SlotReader, TornSlot
from shmclaims.stripes import Stripes
from shmclaims.workers import WorkerRing

__all__ = [
    "AlreadyClaimed",
    "Claim",
    "ClaimError",
    "ClaimGone",
    "ClaimState",
    "ClaimTable",
    "ClaimTimeout",
    "DamagedSlot",
    "Handle",
    "StripeBusy",
    "TableFull",
]

# A claim goes to its first bucket while that has so many free slots, else to the emptier one. The first refusal comes
# at the same load as with the emptier one always, and at half load 99 of 100 lookups end in the first bucket.
COMFORTABLE = 12
LOCK_TRIES = 20
LOCK_PAUSE_SECONDS = 0.00005


class ClaimTable(SlotReader):
    """The slots of one segment. Made by `Segment`; a worker calls `bind` after the fork, before it claims."""

    def __init__(
        self,
        memory: mmap,
        words: memoryview,
        tags: memoryview,
        *,
        geometry: Geometry,
        key: bytes,
        ring: WorkerRing,
        stripes: Stripes,
    ) -> None:
        super().__init__(memory, words, tags, geometry=geometry, key=key, ring=ring)
        self._entrance = Entrance(words, stripes)
        self._incarnation = 0
        self._index = 0
        self._versions = count(1)  # of this worker's claims; with the crc it makes a handle fit one claim alone

    def bind(self, incarnation: int, index: int) -> None:
        """This process is that worker; call it in the worker, after the fork."""
        self._incarnation = incarnation
        self._index = index
        self._entrance.bind(incarnation)

    # ---- writing, under the stripe

    def try_claim(self, session: bytes, *, user: int = 0, now: float, replace_gone: bool = False) -> Handle:
        """Claim a session for the bound worker. Tries once and never sleeps.

        Args:
            session: the id, any bytes
            user: 32 bits for the caller
            now: wall seconds
            replace_gone: overwrite a gone record of the same session

        Raises:
            StripeBusy: back off and try again
            AlreadyClaimed: a live worker holds it, this one included
            ClaimGone: it was a dead worker's, and `replace_gone` is not set
            TableFull: no room in its two buckets
            struct.error: `user` or `now` do not fit

        """
        digest = self.digest(session)
        tag, stripe, first, second = self._place(digest)
        length, wall = min(len(session), MAX_LENGTH), int(now)
        body = BODY.pack(digest, self._incarnation, self._index, length, wall, user, prefix_of(session))
        low = (next(self._versions) & MAX_VERSION) << 8 | LIVE
        control = crc32(body, low) << 32 | low
        entry = Entry()
        entrance = self._entrance
        try:  # no second `try` inside: the gap between the two would be covered by neither
            entrance.enter(stripe, entry)
            choice = self._choose(digest, tag, first, second, replace_gone=replace_gone)
            if not isinstance(choice, ClaimError):
                slot, recycled = choice
                entry.slot, entry.control = slot, control
                self._write(slot, control, body, wall)
            entrance.leave(stripe)
        except BaseException:
            entrance.thrown_out(entry)
            raise
        if isinstance(choice, ClaimError):
            raise choice
        return Handle(slot, control, stripe, recycled)

    def try_release(self, handle: Handle) -> bool:
        """End a claim. Tries once; raises StripeBusy. False: the slot is no longer the handle's."""
        words, slot = self._words, handle.slot
        entry = Entry()
        entrance = self._entrance
        try:
            entrance.enter(handle.stripe, entry)
            held = words[slot] == handle.control
            if held:
                words[slot] = 0
                self.clear_tag(slot)
            entrance.leave(handle.stripe)
        except BaseException:
            entrance.thrown_out(entry)
            raise
        return held

    def touch(self, handle: Handle, *, now: float) -> bool:
        """Note a use, at `now` in wall seconds. The owner's alone: one store, no lock. False as in `try_release`."""
        if self._words[handle.slot] != handle.control:
            return False
        self._words[handle.slot + USED_WORD] = int(now) & LOW_HALF
        return True

    def audit(self, known: Collection[Handle]) -> list[Handle]:
        """This worker's claims that none of `known` holds, left by an exception: the caller releases them."""
        held = {(handle.slot, handle.control) for handle in known}
        words, per_stripe = self._words, self._buckets * BUCKET
        found = []
        for number, owner in enumerate(self._owners(empty=True)):
            if owner == self._incarnation:
                slot = self._slots_word + number * SLOT_WORDS
                control = words[slot]
                if control and (slot, control) not in held:
                    found.append(Handle(slot, control, number // per_stripe))
        return found

    def clear_tag(self, slot: int) -> None:
        """Forget the tag of a slot that was emptied; under its stripe."""
        self._tags[self._tag_of(slot)] = 0

    # ---- with sleeps: for tests, benchmarks and threads, never on an event loop

    def claim(
        self, session: bytes, *, user: int = 0, now: float, replace_gone: bool = False, timeout: float = 5.0
    ) -> Handle:
        """`try_claim` until it is not busy. Raises what that raises, and ClaimTimeout after `timeout` seconds."""
        for _ in _tries(timeout):
            try:
                return self.try_claim(session, user=user, now=now, replace_gone=replace_gone)
            except StripeBusy:
                pass
        raise ClaimTimeout(f"a stripe stayed busy for {timeout} s")

    def release(self, handle: Handle, *, timeout: float = 5.0) -> bool:
        """`try_release` until it is not busy. Raises ClaimTimeout after `timeout` seconds."""
        for _ in _tries(timeout):
            try:
                return self.try_release(handle)
            except StripeBusy:
                pass
        raise ClaimTimeout(f"stripe {handle.stripe} stayed busy for {timeout} s")

    # ---- inside

    def _lookup_locked(self, digest: bytes) -> Claim | None:
        tag, stripe, first, second = self._place(digest)
        entrance = self._entrance
        if not entrance.bound:
            return super()._lookup_locked(digest)
        for attempt in range(LOCK_TRIES):
            if attempt:
                time.sleep(LOCK_PAUSE_SECONDS)
            entry = Entry()
            try:
                entrance.enter(stripe, entry)
                found = self._search_quietly(digest, tag, first, second)
                entrance.leave(stripe)
            except StripeBusy:
                continue
            except BaseException:
                entrance.thrown_out(entry)
                raise
            if isinstance(found, DamagedSlot):
                raise found
            return None if found is None else found[1]
        raise StripeBusy(f"stripe {stripe}: a slot was seen torn {TORN_READS} times, and the stripe is busy")

    def _search_quietly(
        self, digest: bytes, tag: bytes, first: int, second: int
    ) -> tuple[int, Claim] | DamagedSlot | None:
        """`_search` under the stripe, where errors are returned: an exception would mean to be thrown out of it."""
        try:
            return self._search(digest, tag, first, second)
        except TornSlot:
            return DamagedSlot("a slot's checksum is wrong under its stripe: something else wrote to the segment")

    def _choose(
        self, digest: bytes, tag: bytes, first: int, second: int, *, replace_gone: bool
    ) -> tuple[int, Claim | None] | ClaimError:
        """(word of the slot to write, gone record that is overwritten), or why not; under the stripe."""
        found = self._search_quietly(digest, tag, first, second)
        if isinstance(found, DamagedSlot):
            return found
        if found is not None:
            if found[1].state is ClaimState.LIVE:
                return AlreadyClaimed(found[1])
            return found if replace_gone else ClaimGone(found[1])
        start, tags = first, self.tags_at(first)
        if tags.count(0) < COMFORTABLE:
            others = self.tags_at(second)
            if others.count(0) > tags.count(0):
                start, tags = second, others
        if 0 in tags:
            slot = self._slot_of(start, tags.index(0))
            if not self._words[slot]:
                return slot, None
        return self._choose_crowded(first, second)

    def _choose_crowded(self, first: int, second: int) -> tuple[int, Claim | None] | ClaimError:
        """No tag is 0: a slot whose tag a killed worker left behind, else the gone one that was used least recently."""
        words = self._words
        oldest: tuple[int, int] | None = None
        for start in (first, second):
            for number in range(BUCKET):
                slot = self._slot_of(start, number)
                if not words[slot]:
                    return slot, None
                if not self._is_live(words[slot + OWNER_WORD] & LOW_HALF):
                    candidate = words[slot + USED_WORD], slot
                    oldest = candidate if oldest is None else min(oldest, candidate)
        if oldest is None:
            return TableFull(f"two full buckets: found {2 * BUCKET} live claims, capacity {self.capacity} sessions")
        record = self.read_slot(oldest[1])
        return oldest[1], None if record is None else record[1]

    def _write(self, slot: int, control: int, body: bytes, used: int) -> None:
        """Fill a slot and publish it; under the stripe."""
        words, offset = self._words, slot * 8
        words[slot] = 0
        self._memory[offset + 8 : offset + 56] = body
        words[slot + USED_WORD] = used
        self._tags[self._tag_of(slot)] = int.from_bytes(body[:TAG_SIZE], "little")
        words[slot] = control


def _tries(timeout: float) -> Iterator[None]:
    """One turn at once, then with pauses that grow from 20 us to 1 ms, until the time is up."""
    end = time.monotonic() + timeout
    pause = 0.00002
    yield
    while time.monotonic() < end:
        time.sleep(pause)
        pause = min(pause * 1.5, 0.001)
        yield


Entrance.critical |= {
    function.__code__ for function in (ClaimTable.try_claim, ClaimTable.try_release, ClaimTable._lookup_locked)
}
