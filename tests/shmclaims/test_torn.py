"""Torn reads: one process rewrites a slot without pause, another reads it; with a record that does tear as the control.

On x86 a 64-byte slot on its own cache line is hardly ever seen torn, so a test of the checksum alone would pass without
one. The control is the same torture on a record across two cache lines, which is seen mixed within moments.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from zlib import crc32

import pytest
from model.herd import Herd, until

from shmclaims import Segment, StripeBusy
from shmclaims.layout import BODY, LIVE, SLOT

NOW = 1_700_000_000


@contextmanager
def writing(write: Callable[[], None]) -> Iterator[None]:
    """A child process that calls `write` until the block is left."""
    pid = os.fork()
    if not pid:
        try:
            signal.alarm(100)
            while True:
                write()
        finally:
            os._exit(1)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def versions() -> list[bytes]:
    """Two whole slots that differ in every byte of the body."""
    made = []
    for version, fill in ((1, 0x11), (2, 0xEE)):
        body = bytes([fill]) * BODY.size
        low = version << 8 | LIVE
        made.append(SLOT.pack(low, crc32(body, low), body, 0))
    return made


def torture(memory: mmap.mmap, offset: int, *, enough: int, seconds: float) -> tuple[int, int]:
    """Read until `enough` mixed copies were seen or the time is up; (mixed copies, those the checksum let pass)."""
    mixed = passed = 0
    end = time.monotonic() + seconds
    while mixed < enough and time.monotonic() < end:
        for _ in range(1000):
            low, crc, body, _ = SLOT.unpack(memory[offset : offset + SLOT.size])
            version = 0x11 if low >> 8 == 1 else 0xEE
            if body.count(version) != len(body):
                mixed += 1
                passed += crc32(body, low) == crc
    return mixed, passed


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors: on one, copies are not torn")
def test_a_straddling_record_tears_and_the_checksum_sees_all_of_it() -> None:
    """The control: across two cache lines copies are mixed, which this torture sees; none passes the checksum."""
    memory = mmap.mmap(-1, 4096)
    one, other = versions()
    memory[32:96] = one

    def write() -> None:
        for _ in range(1000):
            memory[32:96] = one
            memory[32:96] = other

    with writing(write):
        mixed, passed = torture(memory, 32, enough=20, seconds=60)
    assert mixed >= 20
    assert passed == 0


def test_the_tables_own_slot_is_read_whole(herd: Herd) -> None:
    """One worker claims and releases in one slot all the time; whoever looks sees one of its claims whole, or none."""

    def worker(segment: Segment) -> None:
        number = 0
        while True:
            number += 1
            handle = segment.table.claim(b"session", user=number & 0xFFFF, now=NOW + (number & 0xFFFF))
            segment.table.release(handle)

    writer = herd.fork(worker, index=1)
    table = herd.segment.table
    until(lambda: table.lookup(b"session") is not None, "the first claim")
    seen: set[int] = set()
    rounds = 0

    def many_seen() -> bool:
        nonlocal rounds
        rounds += 1
        for _ in range(500):
            claim = table.lookup(b"session")
            if claim is not None:
                assert claim.incarnation == writer.incarnation
                assert claim.opened_at - NOW == claim.user
                seen.add(claim.user)
        return rounds > 500 and len(seen) > 30  # on a crowded machine the two seldom run at the same time

    until(many_seen, "enough of the writer's claims", seconds=60)
    herd.kill(writer)


def test_a_reader_meets_half_written_slots_and_waits_them_out(herd: Herd) -> None:
    """A slot whose body is changed under its control word, as no worker does, is never believed, and read again."""
    table = herd.segment.table
    herd.play(herd.register())
    handle = table.try_claim(b"session", user=7, now=NOW)
    herd.segment.stripes.semaphores[0].acquire(0)  # as if the writer held the stripe: nobody may call the slot damaged
    word, whole = handle.slot + 4, herd.segment.words[handle.slot + 4]

    def write() -> None:
        for _ in range(200):
            herd.segment.words[word] = whole ^ (0xFFFF << 32)
            herd.segment.words[word] = whole

    again = 0
    usual = table._lookup_again

    def counted(digest: bytes) -> object:
        nonlocal again
        again += 1
        return usual(digest)

    table._lookup_again = counted  # type: ignore[method-assign,assignment]
    with writing(write):

        def torn_at_last() -> bool:
            for _ in range(200):
                with contextlib.suppress(StripeBusy):  # it was descheduled between its two stores
                    claim = table.lookup(b"session")
                    assert claim is not None
                    assert (claim.user, claim.opened_at) == (7, NOW)
            return again > 10

        until(torn_at_last, "copies with a bad checksum")
    herd.segment.words[word] = whole
    herd.segment.stripes.semaphores[0].release()
