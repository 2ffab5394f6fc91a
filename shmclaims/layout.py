"""Where every byte of a segment lies.

    offset      size              region   written by
    0           4,096             header   the supervisor, at creation; `next incarnation` whenever a worker starts
    4,096       64 x 64           stripes  the supervisor: repair flag, number of repairs
    8,192       256 x 256         ring     a row for each incarnation of a worker (see `Row`)
    73,728      256 x 16          seats    the supervisor: what each worker index is up to
    77,824      4 x slots         tags     first 4 bytes of a slot's digest, under the slot's stripe
    next page   64 x slots        slots    under the slot's stripe, but for the last word (see below)

A slot is 64 bytes on a 64-byte boundary, one cache line:

    0-7     control word, the commit: state 8 bits, version 24, crc32 32; 0 is an empty slot
    8-23    keyed BLAKE2b-128 digest of the session id
    24-27   incarnation of the owner        28-29 its worker index      30-31 length of the id
    32-35   opened at, wall seconds         36-39 user word
    40-55   readable prefix of the id, a Pascal string of at most 8 characters
    56-63   last used, wall seconds; one store by the owner, without a lock and outside the crc

The crc covers bytes 8-55 and is seeded with the control word's low half, so that a body never passes for another
version's. Every word is stored as one aligned 8-byte store in native order: CPython's memoryview and the kernel's pages
see to that (and so a tag as one 4-byte store); a store in the other byte order is made of single bytes, and tears.

The tags are an index: 32 of them (a bucket) are two cache lines, where the slots are thirty-two. A tag is written
before its slot's commit and cleared after its slot is emptied, so a committed slot always has its tag, and a tag that
a killed worker left behind names an empty slot, which every reader checks anyway.
"""

from __future__ import annotations

import math
import struct
import sys
from dataclasses import dataclass
from enum import IntEnum

if sys.byteorder != "little":
    msg = f"shmclaims keeps little-endian words, found a {sys.byteorder}-endian machine"
    raise ImportError(msg)

MAGIC = b"gsvclaim"
FORMAT = 1
HEADER_SIZE = 4096
HEADER = struct.Struct(
    "=8s6I16sQI4x"
)  # magic, format, slots, bucket, stripes, max_sessions, rows, key, next inc., info
NEXT_INCARNATION_WORD = 6
INFO_OFFSET = 64
INFO_SIZE = HEADER_SIZE - INFO_OFFSET

MAX_STRIPES = 64
STRIPES_OFFSET = HEADER_SIZE
STRIPE_SIZE = 64
STRIPE_WORDS = STRIPE_SIZE // 8

ROWS = 256
ROW_SIZE = 256
ROW_WORDS = ROW_SIZE // 8
RING_OFFSET = STRIPES_OFFSET + MAX_STRIPES * STRIPE_SIZE
RING_WORD = RING_OFFSET // 8
RING_END_WORD = RING_WORD + ROWS * ROW_WORDS

SEATS = 256
SEAT_WORDS = 2
SEATS_OFFSET = RING_OFFSET + ROWS * ROW_SIZE
SEATS_WORD = SEATS_OFFSET // 8

TAGS_OFFSET = SEATS_OFFSET + SEATS * SEAT_WORDS * 8
TAG_SIZE = 4

BUCKET = 32
BUCKET_TAG_BYTES = BUCKET * TAG_SIZE
SLOT_SIZE = 64
SLOT_WORDS = SLOT_SIZE // 8
OWNER_WORD = 3  # of a slot: its low half is the incarnation
USED_WORD = 7  # of a slot: last used
LIVE = 1  # the one state of a control word that is not 0

LOW_HALF = 0xFFFFFFFF
MAX_INCARNATION = LOW_HALF
MAX_VERSION = 0xFFFFFF
MAX_LENGTH = 0xFFFF  # of an id, as it is noted; a longer one is noted as this long
MAX_SLOTS = 1 << 26

BODY = struct.Struct("=16sIHHII16p")  # digest, incarnation, index, id length, opened at, user, prefix: bytes 8-55
SLOT = struct.Struct("=II48sQ")  # low half of the control word, its crc, body, last used
PLACE = struct.Struct("=4sH2xII")  # a digest: its tag, and what picks the stripe, the first bucket and the second

PREFIX_LENGTH = 8
PRINTABLE = bytes(c if 0x21 <= c <= 0x7E else 0x3F for c in range(256))  # others become "?": dumps end on terminals

EXIT_SIGNAL = 512
MAX_EXIT = EXIT_SIGNAL + 64
REASON_WORDS = 10
REASON_BYTES = 8 * REASON_WORDS

ABANDONED = 1 << 32  # beside a stripe in an intent: its worker lives, but was thrown out of the critical section


class RowState(IntEnum):
    """State of a ring row, that is of one incarnation of a worker; every state but FREE and DEAD is live."""

    FREE = 0
    BOOTING = 1
    READY = 2
    DRAINING = 3
    STOPPING = 4
    DEAD = 5


class SeatState(IntEnum):
    """State of a worker index, as status shows it; EMPTY: no worker has this index."""

    EMPTY = 0
    BOOTING = 1
    READY = 2
    DRAINING = 3
    STOPPING = 4
    BACKOFF = 5
    FAILED = 6


class Row(IntEnum):
    """Words of a ring row. STATE to EXIT but INTENT, and REASON, are the supervisor's, the others the worker's own."""

    STATE = 0  # incarnation << 8 | state
    INTENT = (
        1  # the stripe that the worker is about to take or holds, plus 1; 0: none. The supervisor clears a dead one's
    )
    PID = 2
    INDEX = 3
    STARTED_AT = 4  # wall seconds
    DIED_AT = 5  # wall seconds; 0: it has not
    EXIT = 6  # of a dead one: 0 not known, 1 + exit status, EXIT_SIGNAL + number of the signal that killed it
    HEARTBEAT = 8  # a counter
    HEARTBEAT_AT = 9  # CLOCK_MONOTONIC in milliseconds, for people
    SESSIONS = 10
    CLAIMS = 11
    UNSEEDED = 12
    IN_FLIGHT = 13
    REQUESTS = 14
    RELAYED_OUT = 15
    RELAYED_IN = 16
    CONNECTIONS = 17
    RSS_BYTES = 18
    REASON = 20  # why the supervisor ends it: REASON_WORDS words of UTF-8, padded with NULs; written before the end


COUNTERS = {
    name.lower(): Row[name].value
    for name in (
        "SESSIONS",
        "CLAIMS",
        "UNSEEDED",
        "IN_FLIGHT",
        "REQUESTS",
        "RELAYED_OUT",
        "RELAYED_IN",
        "CONNECTIONS",
        "RSS_BYTES",
    )
}


@dataclass(frozen=True, slots=True)
class Geometry:
    """How large a table is, and what follows from it."""

    slots: int
    stripes: int
    max_sessions: int

    LOAD = 0.75  # two-choice buckets of 32 first refuse at a load of .93
    SLOTS_A_STRIPE = 1024  # fewer, and chance fills one stripe long before the others
    STRIPES = 16

    @classmethod
    def for_sessions(cls, max_sessions: int, *, stripes: int | None = None) -> Geometry:
        """The table that takes `max_sessions` sessions. Raises ValueError where that is out of range."""
        most = int(MAX_SLOTS * cls.LOAD)
        if not 1 <= max_sessions <= most:
            msg = f"max_sessions: found {max_sessions}, expected 1 to {most}"
            raise ValueError(msg)
        wanted = math.ceil(max_sessions / cls.LOAD)
        count = stripes or min(max(wanted // cls.SLOTS_A_STRIPE, 1), cls.STRIPES)
        buckets = max(-(-wanted // (count * BUCKET)), 2)
        return cls(count * buckets * BUCKET, count, max_sessions)

    @property
    def buckets_a_stripe(self) -> int:
        return self.slots // (self.stripes * BUCKET)

    @property
    def slots_offset(self) -> int:
        return -(-(TAGS_OFFSET + TAG_SIZE * self.slots) // 4096) * 4096

    @property
    def slots_word(self) -> int:
        return self.slots_offset // 8

    @property
    def size(self) -> int:
        """Bytes of the whole segment."""
        return self.slots_offset + self.slots * SLOT_SIZE


def flag_word(stripe: int) -> int:
    """The stripe's repair flag; the word after it counts its repairs."""
    return STRIPES_OFFSET // 8 + stripe * STRIPE_WORDS


def row_word(incarnation: int) -> int:
    """First word of the row that the incarnation has, or had."""
    return RING_WORD + incarnation % ROWS * ROW_WORDS


def prefix_of(session: bytes) -> bytes:
    """What a dump may show of an id: at most 8 characters and never more than half, since ids can be secrets."""
    return session[: min(PREFIX_LENGTH, len(session) // 2)].translate(PRINTABLE)
