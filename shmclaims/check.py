"""The whole-table checker: what must hold when nobody is inside a stripe. Run after every test of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from shmclaims.layout import (
    ABANDONED,
    BODY,
    BUCKET,
    EXIT_SIGNAL,
    LIVE,
    LOW_HALF,
    MAX_EXIT,
    NEXT_INCARNATION_WORD,
    PREFIX_LENGTH,
    RING_WORD,
    ROW_WORDS,
    ROWS,
    SEAT_WORDS,
    SEATS,
    SEATS_WORD,
    SLOT,
    SLOT_SIZE,
    TAG_SIZE,
    TAGS_OFFSET,
    USED_WORD,
    Row,
    RowState,
    SeatState,
    flag_word,
)

if TYPE_CHECKING:
    from shmclaims.segment import Segment


def check(segment: Segment) -> list[str]:
    """Every violated invariant, one line each; empty when the segment is sound.

    A segment at rest is sound. While workers are inside stripes, slots and semaphores that are merely busy may be
    reported. A tag of an empty slot is no violation: a killed worker may leave one, and everybody looks at the slot.
    """
    return [*_rows(segment), *_seats(segment), *_stripes(segment), *_slots(segment)]


def _rows(segment: Segment) -> list[str]:
    words, found = segment.words, []
    following = words[NEXT_INCARNATION_WORD]
    for number in range(ROWS):
        row = RING_WORD + number * ROW_WORDS
        incarnation, state, intent = words[row] >> 8, words[row] & 255, words[row + Row.INTENT]
        if state > RowState.DEAD:
            found.append(f"row {number}: state is {state}")
        if incarnation and (incarnation % ROWS != number or not 0 < incarnation < following):
            found.append(f"row {number}: incarnation {incarnation}, and the next one is {following}")
        if (state == RowState.FREE) != (words[row] == 0):
            found.append(f"row {number}: state {state} with incarnation {incarnation}")
        if (intent and not 1 <= intent & LOW_HALF <= segment.stripes.count) or intent >= 2 * ABANDONED:
            found.append(f"row {number}: intent is {intent:#x}")
        if intent and state == RowState.FREE:
            found.append(f"row {number}: free, with intent {intent:#x}")
        if (state == RowState.DEAD) != (words[row + Row.DIED_AT] != 0):
            found.append(f"row {number}: state {state}, died at {words[row + Row.DIED_AT]}")
        status = words[row + Row.EXIT]
        if status and (state != RowState.DEAD or status == EXIT_SIGNAL or status > MAX_EXIT):
            found.append(f"row {number}: state {state}, exit {status}")
    return found


def _seats(segment: Segment) -> list[str]:
    found = []
    for index in range(SEATS):
        word = segment.words[SEATS_WORD + index * SEAT_WORDS]
        if word & 255 > SeatState.FAILED:
            found.append(f"seat {index}: state is {word & 255}")
        if word >> 8 >= segment.words[NEXT_INCARNATION_WORD]:
            found.append(f"seat {index}: incarnation {word >> 8} was never handed out")
    return found


def _stripes(segment: Segment) -> list[str]:
    found = []
    intended = {(intent & LOW_HALF) - 1 for _, intent in segment.ring.intents()}
    for stripe, semaphore in enumerate(segment.stripes.semaphores):
        flag = segment.words[flag_word(stripe)]
        if flag > 1:
            found.append(f"stripe {stripe}: repair flag is {flag}")
        if flag and stripe not in intended:
            found.append(f"stripe {stripe}: in repair, and no worker intends it")
        if semaphore.value > 1:
            found.append(f"stripe {stripe}: {semaphore.value} tokens")
        if not semaphore.value and stripe not in intended:
            found.append(f"stripe {stripe}: its token is lost, and no worker intends it")
    return found


def _slots(segment: Segment) -> list[str]:
    words, table, geometry, found = segment.words, segment.table, segment.geometry, []
    following = words[NEXT_INCARNATION_WORD]
    seen: dict[bytes, int] = {}
    memory = memoryview(words).cast("B")
    for number in range(geometry.slots):
        offset = geometry.slots_offset + number * SLOT_SIZE
        low, crc, body, used = SLOT.unpack_from(memory, offset)
        if not low:
            if crc:
                found.append(f"slot {number}: half a control word")
            continue
        digest, incarnation, index, length, _, _, prefix = BODY.unpack(body)
        if low & 255 != LIVE:
            found.append(f"slot {number}: state is {low & 255}")
        if crc32(body, low) != crc:
            found.append(f"slot {number}: checksum of the body is wrong")
            continue
        if number // BUCKET not in table.buckets_of(digest):
            found.append(f"slot {number}: digest belongs into buckets {table.buckets_of(digest)}")
        if digest in seen:
            found.append(f"slot {number}: same session as in slot {seen[digest]}")
        seen[digest] = number
        if segment.tags[TAGS_OFFSET // TAG_SIZE + number] != int.from_bytes(digest[:TAG_SIZE], "little"):
            found.append(f"slot {number}: tag is not the digest's")
        if not 0 < incarnation < following:
            found.append(f"slot {number}: incarnation {incarnation} was never handed out")
        row = segment.ring.row(incarnation)
        if row is not None and row.index != index:
            found.append(f"slot {number}: worker {index}, and its row says {row.index}")
        if len(prefix) > min(PREFIX_LENGTH, length // 2):
            found.append(f"slot {number}: shows {len(prefix)} of {length} characters")
        if used > LOW_HALF:
            found.append(f"slot {number}: word {USED_WORD} (last used) is {used:#x}")
    memory.release()
    return found
