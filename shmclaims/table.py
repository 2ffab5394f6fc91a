"""The claim table: which worker owns which session.

Who writes what: a slot's words 0-6 and its tag, a worker under the slot's stripe, and only into a slot that is empty or
whose owner is gone (the supervisor's sweep empties gone ones, under the stripe too); `last used`, the owner, without a lock.

Why unlocked reads are safe: a slot becomes visible with one aligned store, its control word, whose checksum covers the
body. A reader copies the slot once and believes it only when the checksum holds, so it sees a whole claim or none, on x86
and ARM alike. Entries never move, so a lookup never misses a claim that existed throughout. What a stale read costs: a
claim that ends or a worker that dies while it is read may be reported once more, and the owner, asked, says so; a claim
made while it is read may be missed, and the claim that then follows says so.

Rejected: chains and robin-hood probing (an entry that moves is a multi-slot repair), blocking on the semaphore (lost
wake-up), a sequence lock (needs fences that pure Python has not), a holder word per stripe (one more state; resolves none).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from functools import partial
from hashlib import blake2b
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
    BUCKET_TAG_BYTES,
    LIVE,
    LOW_HALF,
    MAX_VERSION,
    OWNER_WORD,
    PLACE,
    SLOT,
    SLOT_SIZE,
    SLOT_WORDS,
    TAGS_OFFSET,
    TAGS_WORD,
    USED_WORD,
    Geometry,
    prefix_of,
)
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

_unpack_place = PLACE.unpack
_unpack_slot = SLOT.unpack
_unpack_body = BODY.unpack
_new_claim = partial(tuple.__new__, Claim)  # a third of the time of Claim(...), on the path of every relayed request
_LIVE, _GONE = ClaimState.LIVE, ClaimState.GONE

TORN_READS = 50  # a writer is inside a slot for microseconds; after so many bad copies the lock is asked
LOCK_TRIES = 20
LOCK_PAUSE_SECONDS = 0.00005


class _Torn(Exception):  # noqa: N818 -- never leaves this module
    pass


class ClaimTable:
    """The slots of one segment. Made by `Segment`; a worker calls `bind` after the fork, before it claims."""

    def __init__(
        self, memory: mmap, words: memoryview, geometry: Geometry, key: bytes, ring: WorkerRing, stripes: Stripes
    ) -> None:
        self._memory = memory
        self._words = words
        self._find = memory.find
        self._ring = ring
        self._is_live = ring.is_live
        self._key = key
        self._stripes = stripes.count
        self._buckets = geometry.buckets_a_stripe
        self.geometry = geometry
        self._slots = geometry.slots
        self._slots_word = geometry.slots_word
        self._slot_base = geometry.slots_offset - 8 * TAGS_OFFSET  # a slot lies at slot_base + 8 * its tag's offset
        self._entrance = Entrance(words, stripes)
        self._incarnation = 0
        self._index = 0
        self._version = 0
        self.capacity = geometry.max_sessions

    def bind(self, incarnation: int, index: int) -> None:
        """This process is that worker; call it in the worker, after the fork."""
        self._incarnation = incarnation
        self._index = index
        self._entrance.bind(incarnation)

    def digest(self, session: bytes) -> bytes:
        """The 16 bytes that stand for a session id in this segment; keyed anew at each start."""
        return blake2b(session, digest_size=16, key=self._key).digest()

    # ---- reading, without a lock

    def lookup(self, session: bytes) -> Claim | None:
        """Whose session it is, or None. Takes no lock; from any thread.

        Raises:
            StripeBusy: the slot was seen torn again and again, and its stripe could not be had (at most 1 ms)
            DamagedSlot: it is torn although nobody writes it
        """
        digest = blake2b(session, digest_size=16, key=self._key).digest()
        tag, stripe, first, second = self._place(digest)
        for _ in range(TORN_READS):
            try:
                found = self._search(digest, tag, first, second)
            except _Torn:
                continue
            return None if found is None else found[1]
        return self._lookup_locked(digest, tag, stripe, first, second)

    def dump(self) -> Iterator[tuple[str, Claim]]:
        """Every claim, as (digest in hex, claim), in the order of the slots. Takes no lock."""
        offset = self._slots_word * 8
        for bucket in range(offset, offset + self._slots * SLOT_SIZE, BUCKET * SLOT_SIZE):
            controls = self._words[bucket // 8 : (bucket + BUCKET * SLOT_SIZE) // 8 : SLOT_WORDS].tolist()
            for number, control in enumerate(controls):
                if control:
                    record = self.read_slot((bucket + number * SLOT_SIZE) // 8)
                    if record is not None:
                        yield record

    def read_slot(self, slot: int) -> tuple[str, Claim] | None:
        """(digest in hex, claim) of the slot at a word; None when it is empty, or torn again and again."""
        for _ in range(TORN_READS):
            try:
                found = self._read(slot * 8)
            except _Torn:
                continue
            return None if found is None else (found[0].hex(), found[1])
        return None

    def buckets_of(self, digest: bytes) -> tuple[int, int]:
        """Numbers of the two buckets that may hold a digest."""
        _, _, first, second = self._place(digest)
        return (first - TAGS_OFFSET) // BUCKET_TAG_BYTES, (second - TAGS_OFFSET) // BUCKET_TAG_BYTES

    def count(self) -> tuple[int, int, int]:
        """(live, gone, capacity in sessions). Reads every slot's head: for people, not for requests."""
        live = gone = 0
        for owner in self._owners():
            if self._is_live(owner):
                live += 1
            else:
                gone += 1
        return live, gone, self.capacity

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
        """
        digest = blake2b(session, digest_size=16, key=self._key).digest()
        tag, stripe, first, second = self._place(digest)
        entry = Entry()
        entrance = self._entrance
        refusal: ClaimError
        try:
            entrance.enter(stripe, entry)
            try:
                slot, recycled = self._choose(digest, tag, first, second, replace_gone=replace_gone)
            except ClaimError as error:
                refusal = error
            else:
                control = self._write(slot, digest, session, user, int(now), entry)
                entrance.leave(stripe)
                return Handle(slot, control, stripe, recycled)
            entrance.leave(stripe)
        except BaseException:
            entrance.thrown_out(entry)
            raise
        raise refusal

    def try_release(self, handle: Handle) -> bool:
        """End a claim. Tries once; raises StripeBusy. False: the slot is no longer the handle's."""
        words, slot = self._words, handle.slot
        if words[slot] != handle.control:
            return False
        entry = Entry()
        entrance = self._entrance
        try:
            entrance.enter(handle.stripe, entry)
            held = words[slot] == handle.control
            if held:
                words[slot] = 0
                words[self._tag_word(slot)] = 0
            entrance.leave(handle.stripe)
        except BaseException:
            entrance.thrown_out(entry)
            raise
        return held

    def touch(self, handle: Handle, *, now: float) -> bool:
        """Note a use (`now` in wall seconds). Owner only, one store, no lock. False: the slot is no longer the handle's."""
        if self._words[handle.slot] != handle.control:
            return False
        self._words[handle.slot + USED_WORD] = int(now) & LOW_HALF
        return True

    def audit(self, known: Collection[Handle]) -> list[Handle]:
        """Handles of this worker's claims that none of `known` holds: left by an exception, to be released by the caller."""
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

    # ---- with sleeps: for tests, benchmarks and threads, never on an event loop

    def claim(
        self, session: bytes, *, user: int = 0, now: float, replace_gone: bool = False, timeout: float = 5.0
    ) -> Handle:
        """`try_claim` until it is not busy. Raises ClaimTimeout after `timeout` seconds, and all else that it raises."""
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

    def _place(self, digest: bytes) -> tuple[bytes, int, int, int]:
        """(tag, stripe, offset of the first candidate's tags, of the second's)."""
        tag, number = _unpack_place(digest)
        buckets = self._buckets
        stripe = number % self._stripes
        x = (number >> 8) % buckets
        y = (number >> 36) % buckets
        if x == y:
            y = x + 1 if x + 1 < buckets else 0
        base = TAGS_OFFSET + stripe * buckets * BUCKET_TAG_BYTES
        return tag, stripe, base + x * BUCKET_TAG_BYTES, base + y * BUCKET_TAG_BYTES

    def _search(self, digest: bytes, tag: bytes, first: int, second: int) -> tuple[int, Claim] | None:
        """(word of the slot, claim) of the session; raises _Torn when a candidate's copy is bad."""
        for start in (first, second):
            at = self._find(tag, start, start + BUCKET_TAG_BYTES)
            while at >= 0:
                if not at & 7:
                    offset = self._slot_base + 8 * at
                    found = self._read(offset)
                    if found is not None and found[0] == digest:
                        return offset >> 3, found[1]
                at = self._find(tag, at + 1, start + BUCKET_TAG_BYTES)
        return None

    def _read(self, offset: int) -> tuple[bytes, Claim] | None:
        """(digest, claim) of the slot at a byte offset, None when it is empty; raises _Torn."""
        control, body, used = _unpack_slot(self._memory[offset : offset + SLOT_SIZE])
        if not control:
            return None
        if crc32(body, control & LOW_HALF) != control >> 32:
            raise _Torn
        digest, incarnation, index, _, opened, user, prefix = _unpack_body(body)
        state = _LIVE if self._is_live(incarnation) else _GONE
        return digest, _new_claim((state, index, incarnation, user, opened, used, prefix.decode("ascii", "replace")))

    def _lookup_locked(self, digest: bytes, tag: bytes, stripe: int, first: int, second: int) -> Claim | None:
        entrance = self._entrance
        for attempt in range(LOCK_TRIES if entrance.bound else 0):
            if attempt:
                time.sleep(LOCK_PAUSE_SECONDS)
            entry = Entry()
            try:
                try:
                    entrance.enter(stripe, entry)
                except StripeBusy:
                    continue
                found: tuple[int, Claim] | None | _Torn
                try:
                    found = self._search(digest, tag, first, second)
                except _Torn as torn:
                    found = torn
                entrance.leave(stripe)
            except BaseException:
                entrance.thrown_out(entry)
                raise
            if isinstance(found, _Torn):
                raise DamagedSlot(f"stripe {stripe}: a slot's checksum is wrong while nobody writes it")
            return None if found is None else found[1]
        raise StripeBusy(f"stripe {stripe}: a slot was seen torn {TORN_READS} times, and the stripe is busy")

    def _choose(
        self, digest: bytes, tag: bytes, first: int, second: int, *, replace_gone: bool
    ) -> tuple[int, Claim | None]:
        """(word of the slot to write, gone record that is overwritten); under the stripe."""
        try:
            found = self._search(digest, tag, first, second)
        except _Torn:
            raise DamagedSlot("a slot's checksum is wrong under its stripe") from None
        if found is not None:
            if found[1].state is _LIVE:
                raise AlreadyClaimed(found[1])
            if not replace_gone:
                raise ClaimGone(found[1])
            return found
        words = self._words
        tags = [words[start >> 3 : (start >> 3) + BUCKET].tolist() for start in (first, second)]
        free = [column.count(0) for column in tags]
        emptier = 0 if free[0] >= free[1] else 1
        if free[emptier]:
            slot = self._slot_of((first, second)[emptier], tags[emptier].index(0))
            if not words[slot]:
                return slot, None
        return self._choose_crowded(first, second)

    def _choose_crowded(self, first: int, second: int) -> tuple[int, Claim | None]:
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
            raise TableFull(f"both buckets are full: found {2 * BUCKET} live claims, capacity {self.capacity} sessions")
        try:
            found = self._read(oldest[1] * 8)
        except _Torn:
            raise DamagedSlot("a slot's checksum is wrong under its stripe") from None
        return oldest[1], found[1] if found else None

    def _write(self, slot: int, digest: bytes, session: bytes, user: int, now: int, entry: Entry) -> int:
        """Fill the slot and publish it; returns its control word. Under the stripe."""
        words = self._words
        self._version = version = self._version + 1 & MAX_VERSION
        length = min(len(session), 0xFFFF)
        body = BODY.pack(digest, self._incarnation, self._index, length, now, user, prefix_of(session))
        low = version << 8 | LIVE
        control = crc32(body, low) << 32 | low
        entry.slot, entry.control = slot, control
        offset = slot * 8
        words[slot] = 0
        self._memory[offset + 8 : offset + 56] = body
        words[slot + USED_WORD] = now
        words[self._tag_word(slot)] = int.from_bytes(digest[:8], "little")
        words[slot] = control
        return control

    def _slot_of(self, tags: int, number: int) -> int:
        """Word of a bucket's n-th slot; the bucket is given by the offset of its tags."""
        return (self._slot_base >> 3) + tags + number * SLOT_WORDS

    def _tag_word(self, slot: int) -> int:
        return TAGS_WORD + (slot - self._slots_word) // SLOT_WORDS

    def _owners(self, *, empty: bool = False) -> Iterator[int]:
        """The incarnation in each slot that holds a claim; with `empty`, in the others as well (then 0)."""
        words, start = self._words, self._slots_word
        step = BUCKET * SLOT_WORDS * 32
        for word in range(start, start + self._slots * SLOT_WORDS, step):
            end = min(word + step, start + self._slots * SLOT_WORDS)
            controls = words[word:end:SLOT_WORDS].tolist()
            owners = words[word + OWNER_WORD : end : SLOT_WORDS].tolist()
            for control, owner in zip(controls, owners, strict=True):
                if control:
                    yield owner & LOW_HALF
                elif empty:
                    yield 0

    def __repr__(self) -> str:
        live, gone, capacity = self.count()
        return f"<ClaimTable live={live} gone={gone} capacity={capacity} slots={self._slots}>"


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
