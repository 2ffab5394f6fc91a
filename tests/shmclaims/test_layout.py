"""Bytes and sizes: the diagram, the structs and the sizing agree."""

from __future__ import annotations

import random
import re

import pytest
from model.herd import Herd

from shmclaims import TableFull, layout
from shmclaims.layout import (
    BODY,
    BUCKET,
    COUNTERS,
    HEADER,
    INFO_OFFSET,
    MAX_STRIPES,
    RING_OFFSET,
    ROW_SIZE,
    ROW_WORDS,
    ROWS,
    SEATS_OFFSET,
    SLOT,
    SLOT_SIZE,
    STRIPES_OFFSET,
    TAGS_OFFSET,
    Geometry,
    Row,
    flag_word,
    prefix_of,
    row_word,
)

NOW = 1_700_000_000


def test_structs_have_the_sizes_of_the_diagram() -> None:
    """A slot is one cache line, its body bytes 8 to 55; the header ends before the info."""
    assert SLOT.size == SLOT_SIZE == 64
    assert BODY.size == 48
    assert HEADER.size <= INFO_OFFSET
    assert max(Row) < ROW_WORDS
    assert ROW_SIZE % 64 == 0
    assert set(COUNTERS.values()) <= {row.value for row in Row}


def test_regions_follow_each_other() -> None:
    """Offsets in the diagram are those of the code, and no region reaches into the next."""
    document = layout.__doc__ or ""
    for name, offset in (
        ("stripes", STRIPES_OFFSET),
        ("ring", RING_OFFSET),
        ("seats", SEATS_OFFSET),
        ("tags", TAGS_OFFSET),
    ):
        assert re.search(rf"^ +{offset:,} .* {name} ", document, re.MULTILINE), name
    assert flag_word(MAX_STRIPES) * 8 == RING_OFFSET
    assert row_word(ROWS - 1) * 8 + ROW_SIZE == SEATS_OFFSET
    geometry = Geometry.for_sessions(50_000)
    assert geometry.slots_offset % 4096 == 0
    assert geometry.slots_offset >= TAGS_OFFSET + 4 * geometry.slots


@pytest.mark.parametrize("sessions", [1, 2, 48, 49, 500, 767, 5_000, 50_000, 1_000_000])
def test_sizes(sessions: int) -> None:
    """At most three quarters full at max_sessions, whole buckets, two candidates in every stripe, 1 to 16 stripes."""
    geometry = Geometry.for_sessions(sessions)
    assert geometry.slots * 0.75 >= sessions
    assert geometry.slots == geometry.stripes * geometry.buckets_a_stripe * BUCKET
    assert geometry.buckets_a_stripe >= 2
    assert 1 <= geometry.stripes <= 16
    assert geometry.slots <= max(sessions / 0.75 * 1.1, 2 * BUCKET) + geometry.stripes * BUCKET


@pytest.mark.parametrize("sessions", [0, -1, 1 << 40])
def test_senseless_sizes_are_refused(sessions: int) -> None:
    """The error says what was found and what was expected."""
    with pytest.raises(ValueError, match=rf"max_sessions: found {sessions}, expected 1 to"):
        Geometry.for_sessions(sessions)


@pytest.mark.parametrize("sessions", [1, 30, 48, 100, 300, 768, 1_100, 1_536, 3_072, 12_288])
def test_max_sessions_fit(sessions: int) -> None:
    """Whatever the ids, a table takes what it was made for; ten keys for the small ones, where chance weighs most."""
    for _ in range(10 if sessions < 2_000 else 1):
        herd = Herd(max_sessions=sessions, stripes=None)
        try:
            herd.play(herd.register())
            for number in range(sessions):
                herd.segment.table.try_claim(b"session-%d" % number, now=NOW)
            assert herd.segment.table.count() == (sessions, 0, sessions)
        finally:
            assert herd.close() == []


def test_the_first_refusal_comes_late() -> None:
    """Two-choice buckets of 32 refuse first when more than nine tenths of the slots are taken."""
    herd = Herd(max_sessions=49_152, stripes=16)
    try:
        table = herd.segment.table
        herd.play(herd.register())
        rand, count = random.Random(5), 0
        with pytest.raises(TableFull):
            for count in range(table.geometry.slots + 1):  # noqa: B007
                table.try_claim(rand.randbytes(16), now=NOW)
        assert count / table.geometry.slots > 0.9
    finally:
        assert herd.close() == []


def test_a_prefix_is_never_the_whole_id() -> None:
    """At most eight characters and at most half."""
    for length in range(40):
        shown = prefix_of(b"x" * length)
        assert len(shown) <= 8
        assert len(shown) * 2 <= length
