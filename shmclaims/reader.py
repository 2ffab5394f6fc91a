"""Reading the slots of a segment without a lock: what a lookup does, and a dump.

Why it is safe: a slot becomes visible with one aligned store, its control word, whose checksum covers the body. A
reader copies the slot and believes it only when the checksum holds, so it sees a whole claim or none, on x86 and
ARM alike. Entries never move, so a lookup never misses a claim that existed throughout.

What a stale read costs: a claim that ends, or whose worker dies, while it is read may be reported once more, and the
owner, asked, says so; a claim that is made while it is read may be missed, and the claim that the reader then makes
says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from mmap import mmap
from zlib import crc32

from shmclaims.claims import Claim, ClaimState, Handle, StripeBusy
from shmclaims.layout import (
    BODY,
    BUCKET,
    BUCKET_TAG_BYTES,
    LOW_HALF,
    OWNER_WORD,
    PLACE,
    SLOT,
    SLOT_SIZE,
    SLOT_WORDS,
    TAG_SIZE,
    TAGS_OFFSET,
    Geometry,
)
from shmclaims.workers import WorkerRing

_unpack_place = PLACE.unpack
_unpack_slot = SLOT.unpack_from  # control word first, then the body with one memcpy
_unpack_body = BODY.unpack
_LIVE, _GONE = ClaimState.LIVE, ClaimState.GONE

TAG_SCALE = SLOT_SIZE // TAG_SIZE
TORN_READS = 50  # a writer is inside a slot for microseconds; after so many bad copies the lock is asked


class TornSlot(Exception):
    """A copy of a slot whose checksum is wrong: it is being written, or damaged."""


class SlotReader:
    """The slots of one segment, to be read."""

    def __init__(
        self,
        memory: mmap,
        words: memoryview,
        tags: memoryview,
        *,
        geometry: Geometry,
        key: bytes,
        ring: WorkerRing,
    ) -> None:
        self._memory = memory
        self._words = words
        self._tags = tags
        self._find = memory.find
        self._ring = ring
        self._is_live = ring.is_live
        self._keyed = blake2b(digest_size=16, key=key)
        self._stripes = geometry.stripes
        self._buckets = geometry.buckets_a_stripe
        stripe_size = geometry.buckets_a_stripe * BUCKET_TAG_BYTES
        self._bases = [TAGS_OFFSET + stripe * stripe_size for stripe in range(geometry.stripes)]
        self.geometry = geometry
        self._slots = geometry.slots
        self._slots_word = geometry.slots_word
        # A slot lies TAG_SCALE times as far behind this as its tag does behind 0.
        self._slot_base = geometry.slots_offset - TAGS_OFFSET * TAG_SCALE
        self.capacity = geometry.max_sessions

    def digest(self, session: bytes) -> bytes:
        """The 16 bytes that stand for a session id in this segment; keyed anew at each start."""
        hasher = self._keyed.copy()  # three quarters of the time of a new one
        hasher.update(session)
        return hasher.digest()

    def lookup(self, session: bytes) -> Claim | None:
        """Whose session it is, or None. Takes no lock; from any thread.

        Raises:
            StripeBusy: the slot was seen torn again and again, and its stripe could not be had (within 1 ms or so)
            DamagedSlot: it is torn although nobody writes it

        """
        # Every relayed request comes through here: the usual way is written out, and whatever is unusual begins again.
        hasher = self._keyed.copy()
        hasher.update(session)
        digest = hasher.digest()
        tag, stripe, first, second = _unpack_place(digest)
        buckets = self._buckets
        base = self._bases[stripe % self._stripes]
        first %= buckets
        start = base + first * BUCKET_TAG_BYTES
        find = self._find
        at = find(tag, start, start + BUCKET_TAG_BYTES)
        if at < 0:
            start = base + (first + 1 + second % (buckets - 1)) % buckets * BUCKET_TAG_BYTES
            at = find(tag, start, start + BUCKET_TAG_BYTES)
            if at < 0:
                return None
        offset = self._slot_base + TAG_SCALE * at
        low, crc, body, used = _unpack_slot(self._memory, offset)
        if low and crc32(body, low) == crc:
            found, incarnation, index, _, opened, user, prefix = _unpack_body(body)
            if found == digest:
                state = _LIVE if self._is_live(incarnation) else _GONE
                return Claim(state, index, incarnation, user, opened, used, prefix.decode())
        return self._lookup_again(digest)

    def find(self, digest: bytes) -> tuple[Handle, Claim] | None:
        """The claim of a digest of 16 bytes, and what names exactly this one; None: nobody claims it, or it is torn
        again and again. Takes no lock.
        """
        tag, stripe, first, second = self._place(digest)
        for _ in range(TORN_READS):
            try:
                found = self._search(digest, tag, first, second)
                if found is None:
                    return None
                slot, claim = found
                control = self._words[slot]
                if self._read(slot * 8) == (digest, claim):
                    return Handle(slot, control, stripe), claim
            except TornSlot:
                continue
        return None

    def stands(self, handle: Handle) -> bool:
        """Whether the very claim that the handle names is still there, of a live worker or not. Takes no lock."""
        standing: bool = self._words[handle.slot] == handle.control
        return standing

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
            except TornSlot:
                continue
            return None if found is None else (found[0].hex(), found[1])
        return None

    def buckets_of(self, digest: bytes) -> tuple[int, int]:
        """Numbers of the two buckets that may hold a digest."""
        _, _, first, second = self._place(digest)
        return (first - TAGS_OFFSET) // BUCKET_TAG_BYTES, (second - TAGS_OFFSET) // BUCKET_TAG_BYTES

    def tags_at(self, offset: int) -> list[int]:
        """The 32 tags of the bucket whose tags begin at a byte offset."""
        start = offset // TAG_SIZE
        return self._tags[start : start + BUCKET].tolist()

    def count(self) -> tuple[int, int, int]:
        """(live, gone, capacity in sessions). Reads every slot's head: for people, not for requests."""
        live = gone = 0
        for owner in self._owners():
            if self._is_live(owner):
                live += 1
            else:
                gone += 1
        return live, gone, self.capacity

    def __repr__(self) -> str:
        live, gone, capacity = self.count()
        return f"<{type(self).__name__} live={live} gone={gone} capacity={capacity} slots={self._slots}>"

    # ---- inside

    def _place(self, digest: bytes) -> tuple[bytes, int, int, int]:
        """(tag, stripe, offset of the first candidate's tags, of the second's)."""
        tag, stripe, first, second = _unpack_place(digest)
        buckets = self._buckets
        stripe %= self._stripes
        first %= buckets
        second = (first + 1 + second % (buckets - 1)) % buckets
        base = self._bases[stripe]
        return tag, stripe, base + first * BUCKET_TAG_BYTES, base + second * BUCKET_TAG_BYTES

    def _search(self, digest: bytes, tag: bytes, first: int, second: int) -> tuple[int, Claim] | None:
        """(word of the slot, claim) of the session; raises TornSlot when a candidate's copy is bad."""
        for start in (first, second):
            at = self._find(tag, start, start + BUCKET_TAG_BYTES)
            while at >= 0:
                if not at % TAG_SIZE:
                    offset = self._slot_base + TAG_SCALE * at
                    found = self._read(offset)
                    if found is not None and found[0] == digest:
                        return offset >> 3, found[1]
                at = self._find(tag, at + 1, start + BUCKET_TAG_BYTES)
        return None

    def _read(self, offset: int) -> tuple[bytes, Claim] | None:
        """(digest, claim) of the slot at a byte offset, None when it is empty; raises TornSlot."""
        low, crc, body, used = _unpack_slot(self._memory, offset)
        if not low:
            return None
        if crc32(body, low) != crc:
            raise TornSlot
        digest, incarnation, index, _, opened, user, prefix = _unpack_body(body)
        state = _LIVE if self._is_live(incarnation) else _GONE
        return digest, Claim(state, index, incarnation, user, opened, used, prefix.decode())

    def _lookup_again(self, digest: bytes) -> Claim | None:
        """A lookup that met a torn slot, an empty one's old tag or another session's tag."""
        tag, _, first, second = self._place(digest)
        for _ in range(TORN_READS):
            try:
                found = self._search(digest, tag, first, second)
            except TornSlot:
                continue
            return None if found is None else found[1]
        return self._lookup_locked(digest)

    def _lookup_locked(self, digest: bytes) -> Claim | None:
        """The last resort of a lookup; for processes that may take stripes."""
        buckets = self.buckets_of(digest)
        raise StripeBusy(
            f"buckets {buckets}: a slot was seen torn {TORN_READS} times, and this process takes no stripes"
        )

    def _slot_of(self, tags: int, number: int) -> int:
        """Word of a bucket's n-th slot; the bucket is given by the offset of its tags."""
        return (self._slot_base + tags * TAG_SCALE) // 8 + number * SLOT_WORDS

    def _tag_of(self, slot: int) -> int:
        return TAGS_OFFSET // TAG_SIZE + (slot - self._slots_word) // SLOT_WORDS

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
