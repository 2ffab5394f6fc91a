"""The checker sees each kind of damage; without these, a silent checker would pass every other test."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import pytest
from model.herd import Herd

from shmclaims import RowState, SeatState, Segment, check
from shmclaims.layout import (
    BODY,
    BUCKET,
    LIVE,
    NEXT_INCARNATION_WORD,
    SEATS_WORD,
    SLOT_WORDS,
    TAG_SIZE,
    TAGS_OFFSET,
    Row,
    flag_word,
    row_word,
)

NOW = 1_700_000_000


def write_slot(segment: Segment, slot: int, *fields: object, state: int = LIVE, used: int = NOW) -> None:
    """Write a slot whose checksum is right whatever else is wrong with it."""
    body = BODY.pack(*fields)
    low = 77 << 8 | state
    offset = slot * 8
    segment._memory[offset + 8 : offset + 56] = body
    segment.words[slot + 7] = used
    segment.words[slot] = crc32(body, low) << 32 | low


def slot_for(segment: Segment, session: bytes, *, other: bool = False) -> tuple[int, bytes]:
    digest = segment.table.digest(session)
    bucket = segment.table.buckets_of(digest)[0]
    if other:
        bucket = next(number for number in range(4) if number not in segment.table.buckets_of(digest))
    slot = segment.table.geometry.slots_word + bucket * BUCKET * SLOT_WORDS
    segment.tags[TAGS_OFFSET // TAG_SIZE + bucket * BUCKET] = int.from_bytes(digest[:TAG_SIZE], "little")
    return slot, digest


def wrong_body(segment: Segment) -> None:
    slot, digest = slot_for(segment, b"session")
    write_slot(segment, slot, digest, 1, 0, 7, NOW, 0, b"ses")
    segment.words[slot + 4] += 1


def half_a_control_word(segment: Segment) -> None:
    slot, _ = slot_for(segment, b"session")
    segment.words[slot] = 1 << 40


def wrong_state(segment: Segment) -> None:
    slot, digest = slot_for(segment, b"session")
    write_slot(segment, slot, digest, 1, 0, 7, NOW, 0, b"ses", state=3)


def wrong_bucket(segment: Segment) -> None:
    slot, digest = slot_for(segment, b"session", other=True)
    write_slot(segment, slot, digest, 1, 0, 7, NOW, 0, b"ses")


def claimed_twice(segment: Segment) -> None:
    slot, digest = slot_for(segment, b"session")
    for copy in (0, 1):
        write_slot(segment, slot + copy * SLOT_WORDS, digest, 1, 0, 7, NOW, 0, b"ses")
    at = TAGS_OFFSET // TAG_SIZE + (slot - segment.table.geometry.slots_word) // SLOT_WORDS
    segment.tags[at + 1] = segment.tags[at]


def wrong_tag(segment: Segment) -> None:
    slot, digest = slot_for(segment, b"session")
    write_slot(segment, slot, digest, 1, 0, 7, NOW, 0, b"ses")
    segment.tags[TAGS_OFFSET // TAG_SIZE + (slot - segment.table.geometry.slots_word) // SLOT_WORDS] ^= 1


def owner_never_born(segment: Segment) -> None:
    slot, digest = slot_for(segment, b"session")
    write_slot(segment, slot, digest, 99, 0, 7, NOW, 0, b"ses")


def owner_of_another_index(segment: Segment) -> None:
    slot, digest = slot_for(segment, b"session")
    write_slot(segment, slot, digest, 1, 5, 7, NOW, 0, b"ses")


def whole_id_shown(segment: Segment) -> None:
    slot, digest = slot_for(segment, b"session")
    write_slot(segment, slot, digest, 1, 0, 7, NOW, 0, b"session")


def used_beyond_its_half(segment: Segment) -> None:
    slot, digest = slot_for(segment, b"session")
    write_slot(segment, slot, digest, 1, 0, 7, NOW, 0, b"ses", used=1 << 40)


def token_lost(segment: Segment) -> None:
    segment.stripes.semaphores[0].acquire(0)


def token_too_many(segment: Segment) -> None:
    segment.stripes.semaphores[0].release()


def flag_left_up(segment: Segment) -> None:
    segment.words[flag_word(0)] = 1


def flag_of_two(segment: Segment) -> None:
    segment.words[flag_word(0)] = 2
    segment.words[row_word(1) + Row.INTENT] = 1


def intent_of_no_stripe(segment: Segment) -> None:
    segment.words[row_word(1) + Row.INTENT] = 2


def intent_of_nobody(segment: Segment) -> None:
    segment.words[row_word(9) + Row.INTENT] = 1


def row_of_another(segment: Segment) -> None:
    segment.words[row_word(2)] = 1 << 8 | RowState.READY


def row_not_handed_out(segment: Segment) -> None:
    segment.words[row_word(40)] = 40 << 8 | RowState.READY


def row_state_unknown(segment: Segment) -> None:
    segment.words[row_word(1)] = 1 << 8 | 6


def row_free_with_owner(segment: Segment) -> None:
    segment.words[row_word(1)] = 1 << 8


def row_dead_without_time(segment: Segment) -> None:
    segment.words[row_word(1)] = 1 << 8 | RowState.DEAD


def row_live_with_exit(segment: Segment) -> None:
    segment.words[row_word(1) + Row.EXIT] = 1


def row_exit_unknown(segment: Segment) -> None:
    segment.ring.mark_dead(1, now=NOW)
    segment.words[row_word(1) + Row.EXIT] = 600


def seat_state_unknown(segment: Segment) -> None:
    segment.words[SEATS_WORD] = 9


def seat_of_the_future(segment: Segment) -> None:
    segment.ring.set_seat(0, SeatState.READY, incarnation=50, restarts=0)


DAMAGES: list[tuple[Callable[[Segment], None], str]] = [
    (wrong_body, "checksum"),
    (half_a_control_word, "half a control word"),
    (wrong_state, "state is 3"),
    (wrong_bucket, "digest belongs into buckets"),
    (claimed_twice, "same session as in slot"),
    (wrong_tag, "tag is not the digest's"),
    (owner_never_born, "incarnation 99 was never handed out"),
    (owner_of_another_index, "worker 5, and its row says 0"),
    (whole_id_shown, "shows 7 of 7 characters"),
    (used_beyond_its_half, "last used"),
    (token_lost, "its token is lost"),
    (token_too_many, "2 tokens"),
    (flag_left_up, "in repair, and no worker intends it"),
    (flag_of_two, "repair flag is 2"),
    (intent_of_no_stripe, "intent is 0x2"),
    (intent_of_nobody, "free, with intent 0x1"),
    (row_of_another, "incarnation 1, and the next one is"),
    (row_not_handed_out, "incarnation 40, and the next one is 2"),
    (row_state_unknown, "state is 6"),
    (row_free_with_owner, "state 0 with incarnation 1"),
    (row_dead_without_time, "died at 0"),
    (row_live_with_exit, "state 2, exit 1"),
    (row_exit_unknown, "exit 600"),
    (seat_state_unknown, "state is 9"),
    (seat_of_the_future, "incarnation 50 was never handed out"),
]


@pytest.mark.parametrize(("damage", "said"), DAMAGES, ids=[damage.__name__ for damage, _ in DAMAGES])
def test_the_checker_sees(damage: Callable[[Segment], None], said: str) -> None:
    """Each kind of damage to a sound segment is reported in its own words."""
    segment = Segment.create({}, max_sessions=96, stripes=1)
    try:
        one = segment.ring.register(0, now=NOW)
        segment.ring.set_state(one, RowState.READY)
        assert check(segment) == []
        damage(segment)
        found = check(segment)
        assert any(said in line for line in found), found
    finally:
        segment.unlink()
        segment.close()


def test_a_busy_table_is_sound_and_a_reader_can_check_it(herd: Herd) -> None:
    """Live and gone claims, a released slot, dead rows and used seats are all in order, also seen read-only."""
    ring, table = herd.segment.ring, herd.segment.table
    first, second = herd.register(0), herd.register(1)
    for worker, index in ((first, 0), (second, 1)):
        herd.play(worker, index)
        handles = [table.try_claim(f"{index}-{number}".encode(), now=NOW) for number in range(20)]
        table.try_release(handles[3])
        ring.set_seat(index, SeatState.READY, incarnation=worker, restarts=1)
    ring.mark_dead(first, now=NOW)
    assert check(herd.segment) == []
    reader = Segment.attach(herd.segment.name)
    assert check(reader) == []
    reader.close()


def test_a_dead_workers_lost_token_is_its_intents_business(herd: Herd) -> None:
    """A token that is missing while a worker intends its stripe is not damage: repair is due, or somebody is inside."""
    one = herd.register(0)
    herd.segment.words[row_word(one) + Row.INTENT] = 1
    herd.segment.stripes.semaphores[0].acquire(0)
    assert check(herd.segment) == []
    herd.segment.ring.mark_dead(one, now=NOW)
    assert check(herd.segment) == []
    herd.repair.begin(one)
    assert check(herd.segment) == []
    herd.repair_all()
    assert herd.segment.words[NEXT_INCARNATION_WORD] == one + 1
