"""What claim, release, touch, lookup, dump and count do, in one process that plays several workers."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable

import pytest
from model.herd import Herd, until

from shmclaims import (
    AlreadyClaimed,
    ClaimGone,
    ClaimState,
    ClaimTimeout,
    DamagedSlot,
    Handle,
    RowState,
    Segment,
    StripeBusy,
    TableFull,
    check,
)
from shmclaims.layout import BUCKET, SLOT_WORDS, TAG_SIZE, TAGS_OFFSET

NOW = 1_700_000_000.5
SLOTS = 2 * BUCKET  # of the herd's table


def names(count: int, prefix: str = "session") -> list[bytes]:
    return [f"{prefix}-{number:04d}".encode() for number in range(count)]


def test_a_claim_is_seen_with_all_that_was_given(herd: Herd) -> None:
    """A lookup tells owner, user word and times of a claim, and the start of its id."""
    table = herd.segment.table
    me = herd.register(index=3)
    herd.play(me, index=3)
    assert table.lookup(b"b3e1c0de-1234") is None
    table.try_claim(b"b3e1c0de-1234", user=0xFFFFFFFF, now=NOW)
    claim = table.lookup(b"b3e1c0de-1234")
    assert claim is not None
    assert (claim.state, claim.index, claim.incarnation, claim.user) == (ClaimState.LIVE, 3, me, 0xFFFFFFFF)
    assert (claim.opened_at, claim.last_used_at, claim.prefix) == (1_700_000_000, 1_700_000_000, "b3e1c0")
    assert claim.state == "live"


def test_a_released_session_is_nobodys(herd: Herd) -> None:
    """After a release the session can be claimed by anybody, and the old handle means nothing."""
    table = herd.segment.table
    first, second = herd.register(0), herd.register(1)
    herd.play(first, 0)
    handle = table.try_claim(b"session", now=NOW)
    assert table.try_release(handle) is True
    assert table.lookup(b"session") is None
    assert table.try_release(handle) is False
    herd.play(second, 1)
    again = table.try_claim(b"session", now=NOW)
    assert again.slot == handle.slot
    assert table.try_release(handle) is False
    assert table.touch(handle, now=NOW) is False
    claim = table.lookup(b"session")
    assert claim is not None
    assert claim.incarnation == second


def test_the_same_worker_claims_the_same_slot_again(herd: Herd) -> None:
    """A handle is not fooled by the same session, worker and slot within the same second."""
    herd.play(herd.register())
    old = herd.segment.table.try_claim(b"session", now=NOW)
    herd.segment.table.try_release(old)
    new = herd.segment.table.try_claim(b"session", now=NOW)
    assert new.slot == old.slot
    assert herd.segment.table.try_release(old) is False
    assert herd.segment.table.try_release(new) is True


def test_a_live_claim_is_refused_with_its_owner(herd: Herd) -> None:
    """Whoever claims a live session, its owner included, is told by whom it is held."""
    table = herd.segment.table
    first, second = herd.register(0), herd.register(1)
    herd.play(first, 0)
    table.try_claim(b"session", now=NOW)
    for worker in (first, second):
        herd.play(worker)
        with pytest.raises(AlreadyClaimed, match=f"worker 0, incarnation {first}") as refused:
            table.try_claim(b"session", now=NOW, replace_gone=True)
        assert refused.value.claim.incarnation == first


def test_a_dead_workers_claim_is_gone_until_it_is_replaced(herd: Herd) -> None:
    """A gone session is refused as gone, and overwritten in its own slot when asked for."""
    table = herd.segment.table
    first, second = herd.register(0), herd.register(1)
    herd.play(first, 0)
    gone = table.try_claim(b"session", user=9, now=NOW)
    herd.segment.ring.mark_dead(first, now=NOW)
    seen = table.lookup(b"session")
    assert seen is not None
    assert (seen.state, seen.user) == ("gone", 9)
    herd.play(second, 1)
    with pytest.raises(ClaimGone) as refused:
        table.try_claim(b"session", now=NOW)
    assert refused.value.claim == seen
    handle = table.try_claim(b"session", now=NOW, replace_gone=True)
    assert (handle.slot, handle.recycled) == (gone.slot, seen)
    claim = table.lookup(b"session")
    assert claim is not None
    assert (claim.state, claim.incarnation) == ("live", second)
    assert [record for _, record in table.dump()] == [claim]


@pytest.mark.parametrize("state", [RowState.BOOTING, RowState.READY, RowState.DRAINING, RowState.STOPPING])
def test_every_state_but_dead_is_live(herd: Herd, state: RowState) -> None:
    """A draining or stopping worker's claims stay live: nobody takes its sessions."""
    table = herd.segment.table
    first, second = herd.register(0), herd.register(1)
    herd.play(first, 0)
    handle = table.try_claim(b"session", now=NOW)
    herd.segment.ring.set_state(first, state)
    claim = table.lookup(b"session")
    assert claim is not None
    assert claim.state is ClaimState.LIVE
    herd.play(second, 1)
    with pytest.raises(AlreadyClaimed):
        table.try_claim(b"session", now=NOW, replace_gone=True)
    herd.play(first, 0)
    assert table.try_release(handle)


def test_touch_changes_last_used_alone(herd: Herd) -> None:
    """A touch shows the time of the last use, and takes no stripe."""
    table = herd.segment.table
    herd.play(herd.register())
    handle = table.try_claim(b"session", user=5, now=NOW)
    herd.segment.stripes.semaphores[0].acquire(0)
    assert table.touch(handle, now=NOW + 60)
    herd.segment.stripes.semaphores[0].release()
    claim = table.lookup(b"session")
    assert claim is not None
    assert (claim.opened_at, claim.last_used_at, claim.user) == (int(NOW), int(NOW) + 60, 5)


def test_a_full_table_is_an_error(herd: Herd) -> None:
    """The last slot is used; then a claim is refused, every claim is still there, and a release makes room."""
    table = herd.segment.table
    me = herd.register()
    herd.play(me)
    handles = {}
    for name in names(SLOTS):
        handles[name] = table.try_claim(name, now=NOW)
    with pytest.raises(TableFull, match="capacity 48 sessions"):
        table.try_claim(b"one too many", now=NOW)
    assert all(table.lookup(name) is not None for name in handles)
    assert table.lookup(b"one too many") is None
    assert table.count() == (SLOTS, 0, 48)
    table.try_release(handles[b"session-0007"])
    assert table.try_claim(b"one too many", now=NOW).slot == handles[b"session-0007"].slot


def test_gone_slots_are_recycled_oldest_first(herd: Herd) -> None:
    """A full table gives up the gone record used least recently, tells which, and never a live claim."""
    table = herd.segment.table
    dying, living = herd.register(0), herd.register(1)
    herd.play(living, 1)
    kept = [table.try_claim(name, now=NOW) for name in names(SLOTS - 3, "kept")]
    herd.play(dying, 0)
    for age, name in ((2, b"middle"), (3, b"oldest"), (1, b"newest")):
        table.try_claim(name, now=NOW - age)
    herd.segment.ring.mark_dead(dying, now=NOW)
    herd.play(living, 1)
    recycled = []
    for name in (b"first", b"second", b"third"):
        handle = table.try_claim(name, now=NOW)
        assert handle.recycled is not None
        recycled.append(int(NOW) - handle.recycled.last_used_at)
    assert recycled == [3, 2, 1]
    with pytest.raises(TableFull):
        table.try_claim(b"fourth", now=NOW)
    assert all(table.lookup(name) is None for name in (b"oldest", b"middle", b"newest"))
    assert all(table.touch(handle, now=NOW) for handle in kept)


def test_a_tag_that_a_killed_worker_left_costs_no_slot(herd: Herd) -> None:
    """A slot whose tag outlived its claim is used again before any gone record is given up."""
    table = herd.segment.table
    herd.play(herd.register())
    handles = [table.try_claim(name, now=NOW) for name in names(SLOTS)]
    herd.segment.words[handles[11].slot] = 0  # as if killed between the two stores of a release
    assert table.lookup(names(SLOTS)[11]) is None
    assert table.try_claim(b"takes its place", now=NOW).slot == handles[11].slot
    assert table.lookup(b"takes its place") is not None


def test_many_sessions_come_and_go(make_herd: Callable[..., Herd]) -> None:
    """Weeks of churn leave nothing behind: ten table-fulls of sessions later the table is as empty as at first."""
    herd = make_herd(max_sessions=700, stripes=2)
    table = herd.segment.table
    herd.play(herd.register())
    for generation in range(10):
        handles = [table.try_claim(name, now=NOW) for name in names(700, f"generation-{generation}")]
        assert table.count()[0] == 700
        assert all(table.try_release(handle) for handle in handles)
    assert table.count() == (0, 0, 700)
    assert not any(herd.segment.tags[TAGS_OFFSET // TAG_SIZE :][: table.geometry.slots].tolist())


def test_dump_and_count_agree(herd: Herd) -> None:
    """A dump lists each claim once by its keyed digest, and the count is the dump's."""
    table = herd.segment.table
    first, second = herd.register(0), herd.register(1)
    herd.play(first, 0)
    for name in names(5, "gone"):
        table.try_claim(name, now=NOW)
    herd.play(second, 1)
    for name in names(7, "live"):
        table.try_claim(name, now=NOW)
    herd.segment.ring.mark_dead(first, now=NOW)
    dump = dict(table.dump())
    assert len(dump) == 12
    assert table.count() == (7, 5, 48)
    assert {dump[table.digest(name).hex()].state for name in names(5, "gone")} == {ClaimState.GONE}
    assert {dump[table.digest(name).hex()].state for name in names(7, "live")} == {ClaimState.LIVE}
    assert repr(table) == "<ClaimTable live=7 gone=5 capacity=48 slots=64>"


def test_digests_are_keyed_anew_for_each_segment(make_herd: Callable[..., Herd]) -> None:
    """A client cannot aim at a bucket: two segments have two keys."""
    one, other = make_herd(), make_herd()
    assert one.segment.table.digest(b"session") != other.segment.table.digest(b"session")
    assert len(one.segment.table.digest(b"")) == 16


def test_the_memory_shows_no_whole_id(herd: Herd) -> None:
    """Ids can be secrets: 8 characters of a long one are kept, half of a short one, and nothing a terminal obeys."""
    table = herd.segment.table
    herd.play(herd.register())
    shown = {}
    for name in (b"0123456789abcdef", b"short", b"x", b"", b"\x1b[31m\xff\xfe bell\x07 and more", b"n" * 70_000):
        table.try_claim(name, now=NOW)
        claim = table.lookup(name)
        assert claim is not None
        shown[name[:4]] = claim.prefix
    assert shown == {b"0123": "01234567", b"shor": "sh", b"x": "", b"": "", b"\x1b[31": "?[31m???", b"nnnn": "n" * 8}


def test_a_process_that_is_no_worker_claims_nothing(segment: Segment) -> None:
    """Without bind there is no intent to write, so nothing is taken."""
    with pytest.raises(RuntimeError, match="bind"):
        segment.table.try_claim(b"session", now=NOW)


def test_a_workers_own_child_is_not_the_worker(herd: Herd) -> None:
    """What an app forks inherits the mapping, but neither claims nor releases in its parent's name."""

    def worker(segment: Segment) -> None:
        handle = segment.table.try_claim(b"session", now=NOW)
        pid = os.fork()
        if not pid:
            refused = 0
            for attempt in (
                lambda: segment.table.try_claim(b"other", now=NOW),
                lambda: segment.table.try_release(handle),
            ):
                try:
                    attempt()
                except RuntimeError:
                    refused += 1
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
        assert segment.table.try_release(handle)

    assert herd.bury(herd.fork(worker)) == 0


def test_a_busy_stripe_changes_nothing(herd: Herd) -> None:
    """StripeBusy leaves with the intent at 0, the table as it was, and the same call succeeds later."""
    table = herd.segment.table
    herd.play(herd.register())
    handle = table.try_claim(b"held", now=NOW)
    semaphore = herd.segment.stripes.semaphores[0]
    semaphore.acquire(0)
    for attempt in (lambda: table.try_claim(b"session", now=NOW), lambda: table.try_release(handle)):
        with pytest.raises(StripeBusy):
            attempt()
        assert herd.segment.ring.intents() == []
    with pytest.raises(ClaimTimeout):
        table.claim(b"session", now=NOW, timeout=0.01)
    with pytest.raises(ClaimTimeout):
        table.release(handle, timeout=0.01)
    assert table.lookup(b"session") is None
    assert table.lookup(b"held") is not None
    semaphore.release()
    table.claim(b"session", now=NOW)
    assert table.release(handle)


def test_a_senseless_claim_takes_no_stripe(herd: Herd) -> None:
    """What cannot be packed is refused before the stripe is entered: a caller's mistake abandons nothing."""
    table = herd.segment.table
    herd.play(herd.register())
    with pytest.raises(struct.error):
        table.try_claim(b"session", user=1 << 32, now=NOW)
    with pytest.raises(TypeError):
        table.try_claim("session", now=NOW)  # type: ignore[arg-type]
    assert herd.segment.ring.intents() == []
    table.try_claim(b"session", now=NOW)


def test_a_flagged_stripe_is_busy(herd: Herd) -> None:
    """Newcomers turn back from a stripe in repair, although its token is there; lookups go on."""
    table = herd.segment.table
    herd.play(herd.register())
    table.try_claim(b"held", now=NOW)
    dead = herd.register(1)
    herd.segment.words[_intent_word(herd, dead)] = 1
    herd.segment.ring.mark_dead(dead, now=NOW)
    herd.repair.begin(dead)
    assert herd.segment.stripes.flagged(0)
    with pytest.raises(StripeBusy):
        table.try_claim(b"session", now=NOW)
    assert herd.segment.stripes.semaphores[0].value == 1
    assert table.lookup(b"held") is not None
    herd.repair_all()
    table.try_claim(b"session", now=NOW)


def test_threads_of_one_worker_share_its_intent(make_herd: Callable[..., Herd]) -> None:
    """Four threads of one worker claim side by side; each ends with its own claims, and no intent is left."""
    herd = make_herd(max_sessions=500, stripes=2)
    table = herd.segment.table
    herd.play(herd.register())
    kept: dict[int, list[Handle]] = {}

    def work(number: int) -> None:
        kept[number] = []
        for name in names(60, f"thread-{number}"):
            handle = table.claim(name, now=NOW)
            assert table.lookup(name) is not None
            if len(kept[number]) % 2:
                table.release(handle)
                handle = table.claim(name, now=NOW)
            kept[number].append(handle)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert table.count()[0] == 240
    assert herd.segment.ring.intents() == []
    assert table.audit([handle for handles in kept.values() for handle in handles]) == []


def test_an_audit_finds_what_no_handle_holds(herd: Herd) -> None:
    """The owner finds its own claims that it does not know of, and only its own, and can release them."""
    table = herd.segment.table
    first, second = herd.register(0), herd.register(1)
    herd.play(second, 1)
    table.try_claim(b"another's", now=NOW)
    herd.play(first, 0)
    known = table.try_claim(b"known", now=NOW)
    table.try_claim(b"lost", now=NOW)
    (lost,) = table.audit([known])
    assert table.try_release(lost)
    assert table.audit([known]) == []
    assert table.lookup(b"lost") is None
    assert table.lookup(b"another's") is not None


def test_a_damaged_slot_is_an_error_and_no_answer(herd: Herd) -> None:
    """A body that its checksum does not fit is refused by lookup and claim, and seen by the checker."""
    table = herd.segment.table
    herd.play(herd.register())
    handle = table.try_claim(b"session", now=NOW)
    herd.segment.words[handle.slot + 4] ^= 1 << 40
    with pytest.raises(DamagedSlot):
        table.lookup(b"session")
    with pytest.raises(DamagedSlot):
        table.try_claim(b"session", now=NOW)
    assert any("checksum" in line for line in check(herd.segment))
    assert list(table.dump()) == []
    herd.segment.stripes.semaphores[0].acquire(0)
    with pytest.raises(StripeBusy):
        table.lookup(b"session")
    herd.segment.stripes.semaphores[0].release()
    herd.segment.words[handle.slot + 4] ^= 1 << 40
    assert table.lookup(b"session") is not None


def test_a_reader_without_stripes_says_busy_for_a_torn_slot(herd: Herd) -> None:
    """A process that only reads cannot ask the lock about a torn slot, and does not guess."""
    herd.play(herd.register())
    handle = herd.segment.table.try_claim(b"session", now=NOW)
    reader = Segment.attach(herd.segment.name)
    herd.segment.words[handle.slot + 4] ^= 1
    with pytest.raises(StripeBusy, match="takes no stripes"):
        reader.table.lookup(b"session")
    herd.segment.words[handle.slot + 4] ^= 1
    assert reader.table.lookup(b"session") is not None
    reader.close()


def test_another_sessions_tag_leads_nobody_astray(herd: Herd) -> None:
    """Equal tags, and a tag's bytes across two tags, are told apart by the digest."""
    table = herd.segment.table
    herd.play(herd.register())
    handles = [table.try_claim(name, now=NOW) for name in names(SLOTS - 2)]
    wanted = table.digest(b"wanted")[:TAG_SIZE]
    first, second = table.buckets_of(table.digest(b"wanted"))
    taken = {handle.slot for handle in handles}
    start = table.geometry.slots_word
    for bucket in (first, second):
        free = [n for n in range(bucket * BUCKET, (bucket + 1) * BUCKET) if start + n * SLOT_WORDS not in taken]
        for number in free:  # an empty slot with the very tag, as a killed worker leaves it
            herd.segment.tags[TAGS_OFFSET // TAG_SIZE + number] = int.from_bytes(wanted, "little")
    assert table.lookup(b"wanted") is None
    table.try_claim(b"wanted", now=NOW)
    claim = table.lookup(b"wanted")
    assert claim is not None
    assert claim.prefix == "wan"


def test_one_key_across_two_tags_is_not_found(herd: Herd) -> None:
    """Four bytes that happen to straddle two neighbouring tags are no tag."""
    table = herd.segment.table
    herd.play(herd.register())
    wanted = table.digest(b"wanted")
    bucket, _ = table.buckets_of(wanted)
    at = TAGS_OFFSET // TAG_SIZE + bucket * BUCKET
    straddling = b"\0\0" + wanted[:TAG_SIZE] + b"\0\0"
    herd.segment.tags[at] = int.from_bytes(straddling[:4], "little")
    herd.segment.tags[at + 1] = int.from_bytes(straddling[4:], "little")
    assert table.lookup(b"wanted") is None
    handle = table.try_claim(b"wanted", now=NOW)
    assert table.lookup(b"wanted") is not None
    assert table.try_release(handle)


class NamesAsDigests:
    """Stands in for the keyed hash: the session's name, padded, is its digest."""

    def __init__(self, name: bytes = b"") -> None:
        self.name = name

    def copy(self) -> NamesAsDigests:
        return NamesAsDigests()

    def update(self, name: bytes) -> None:
        self.name = name

    def digest(self) -> bytes:
        return self.name.rjust(16, b"\0")


def test_a_tag_of_zero_hides_nothing(herd: Herd) -> None:
    """One digest in four billion begins like an empty slot's tag: its claim is found, its slot not given away."""
    table = herd.segment.table
    table._keyed = NamesAsDigests()  # type: ignore[assignment]
    herd.play(herd.register())
    handles = {}
    for number, name in enumerate(names(SLOTS, "s")):  # ten zero bytes before each: all tags are 0
        assert table.lookup(name) is None
        handles[name] = table.try_claim(name, user=number, now=NOW)
        found = [table.lookup(claimed) for claimed in handles]
        assert [claim.user for claim in found if claim is not None] == list(range(number + 1))
    assert len({handle.slot for handle in handles.values()}) == SLOTS
    with pytest.raises(TableFull):
        table.try_claim(b"full", now=NOW)
    assert all(table.try_release(handle) for handle in handles.values())


def test_claims_of_another_process_are_seen_at_once(herd: Herd) -> None:
    """What one worker has claimed, another finds as soon as it is told; so it is with a release."""

    def worker(segment: Segment) -> None:
        handle = segment.table.claim(b"session", user=1, now=time.time())
        until(lambda: segment.table.lookup(b"go on") is not None, "the other worker's claim")
        segment.table.release(handle)

    other = herd.fork(worker, index=1)
    herd.play(herd.register(0))
    until(lambda: herd.segment.table.lookup(b"session"), "the worker's claim")
    claim = herd.segment.table.lookup(b"session")
    assert claim is not None
    assert claim.incarnation == other.incarnation
    herd.segment.table.claim(b"go on", now=NOW)
    assert herd.bury(other) == 0
    assert herd.segment.table.lookup(b"session") is None


def _intent_word(herd: Herd, incarnation: int) -> int:
    from shmclaims.layout import Row, row_word

    return row_word(incarnation) + Row.INTENT


def test_a_claim_stands_where_it_was_seen(herd: Herd) -> None:
    """A handle from a look-up fits that claim alone: not the next one in its slot, of the same session or not."""
    table = herd.segment.table
    herd.play(herd.register())
    old = table.try_claim(b"session", now=NOW)
    found = table.find(table.digest(b"session"))
    assert found is not None
    assert table.stands(found[0])
    table.touch(old, now=NOW + 60)
    assert table.stands(found[0])
    table.try_release(old)
    assert not table.stands(found[0])
    assert table.try_claim(b"session", now=NOW).slot == found[0].slot
    assert not table.stands(found[0])
