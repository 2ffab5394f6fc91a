"""The sweep of gone records: when, how many, what it never touches, and that it never waits."""

from __future__ import annotations

from typing import Any

import pytest
from model.herd import Herd

from shmclaims import Claim, GoneSweep, StripeBusy
from shmclaims.layout import ROWS, flag_word

DIED = 1_700_000_000
ALL = 1 << 20


def gone(herd: Herd, count: int, *, died: float = DIED, prefix: str = "gone") -> int:
    one = herd.register(3)
    herd.play(one, 3)
    for number in range(count):
        herd.segment.table.try_claim(f"{prefix}-{number}".encode(), now=died)
    herd.segment.ring.mark_dead(one, now=died)
    return one


def test_records_are_retired_when_their_time_is_up(herd: Herd) -> None:
    """Counted from the owner's death; each retired record is told, and the slot is free."""
    told: list[tuple[str, Claim]] = []
    sweep = GoneSweep(herd.segment, retired=lambda digest, claim: told.append((digest, claim)))
    owner = gone(herd, 5)
    assert sweep.step(DIED + 59, retention_seconds=60, budget=ALL) == 0
    assert sweep.step(DIED + 60, retention_seconds=60, budget=ALL) == 5
    assert herd.segment.table.count() == (0, 0, 48)
    assert {digest for digest, _ in told} == {
        herd.segment.table.digest(f"gone-{number}".encode()).hex() for number in range(5)
    }
    assert {(claim.incarnation, claim.index, claim.state) for _, claim in told} == {(owner, 3, "gone")}


def test_without_a_retention_nothing_is_retired(herd: Herd) -> None:
    """None keeps gone records until the table needs the room."""
    gone(herd, 5)
    assert GoneSweep(herd.segment).step(DIED + 10**9, retention_seconds=None, budget=ALL) == 0
    assert herd.segment.table.count()[1] == 5


def test_live_claims_are_never_retired(herd: Herd) -> None:
    """However old: only an owner's death makes a record due."""
    herd.play(herd.register())
    for number in range(40):
        herd.segment.table.try_claim(f"live-{number}".encode(), now=1)
    assert GoneSweep(herd.segment).step(DIED, retention_seconds=0, budget=ALL) == 0
    assert herd.segment.table.count()[0] == 40


def test_a_budget_goes_round(herd: Herd) -> None:
    """A small budget looks at one bucket a call and goes on behind it; two calls see this table."""
    gone(herd, 40)
    sweep = GoneSweep(herd.segment)
    counts = [sweep.step(DIED + 1, retention_seconds=0, budget=1) for _ in range(3)]
    assert sum(counts[:2]) == 40
    assert counts[0] > 0
    assert counts[1] > 0
    assert counts[2] == 0


@pytest.mark.parametrize("busy", ["held", "in repair"])
def test_the_sweep_never_waits(herd: Herd, busy: str) -> None:
    """A stripe that is held or in repair is left for the next round."""
    gone(herd, 5)
    sweep = GoneSweep(herd.segment)
    if busy == "held":
        herd.segment.stripes.semaphores[0].acquire(0)
    else:
        herd.segment.words[4096 // 8] = 1
    assert sweep.step(DIED + 1, retention_seconds=0, budget=ALL) == 0
    if busy == "held":
        herd.segment.stripes.semaphores[0].release()
    else:
        herd.segment.words[4096 // 8] = 0
    assert sweep.step(DIED + 1, retention_seconds=0, budget=ALL) == 5


def test_the_time_of_death_outlives_its_row(herd: Herd) -> None:
    """A row that was reused has forgotten when its former worker died; the sweep counts from what it has seen."""
    owner = gone(herd, 3)
    sweep = GoneSweep(herd.segment)
    assert sweep.step(DIED + 1, retention_seconds=60, budget=ALL) == 0
    while herd.segment.ring.row(owner) is not None:
        newest = herd.register(0)
        if newest != owner + ROWS:
            herd.segment.ring.mark_dead(newest, now=DIED)
    assert sweep.step(DIED + 59, retention_seconds=60, budget=ALL) == 0
    assert GoneSweep(herd.segment).step(DIED + 61, retention_seconds=60, budget=ALL) == 0
    assert sweep.step(DIED + 61, retention_seconds=60, budget=ALL) == 3


def test_a_second_look_is_taken_under_the_stripe(herd: Herd, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot that was claimed anew between the two looks stays."""
    gone(herd, 1)
    sweep = GoneSweep(herd.segment)
    retire = sweep._retire

    def claim_first(stripe: int, due: list[tuple[int, int]], stale: list[int]) -> int:
        if due:
            herd.play(herd.register(1), 1)
            herd.segment.table.try_claim(b"gone-0", now=DIED, replace_gone=True)
        return retire(stripe, due, stale)

    monkeypatch.setattr(sweep, "_retire", claim_first)
    assert sweep.step(DIED + 1, retention_seconds=0, budget=ALL) == 0
    claim = herd.segment.table.lookup(b"gone-0")
    assert claim is not None
    assert claim.state == "live"


def test_a_slot_that_is_claimed_between_the_looks_keeps_its_tag(herd: Herd, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty slot's old tag is cleared only if the slot is still empty under the stripe."""
    herd.play(herd.register())
    table, sweep = herd.segment.table, GoneSweep(herd.segment)
    handles = [table.try_claim(b"session-%d" % number, now=DIED) for number in range(64)]
    herd.segment.words[handles[5].slot] = 0
    retire = sweep._retire

    def claim_first(stripe: int, due: list[tuple[int, int]], stale: list[int]) -> int:
        assert table.try_claim(b"session-5", now=DIED).slot == handles[5].slot
        return retire(stripe, due, stale)

    monkeypatch.setattr(sweep, "_retire", claim_first)
    sweep.step(DIED, retention_seconds=None, budget=ALL)
    assert table.lookup(b"session-5") is not None


def test_the_sweep_forgets_the_dead_that_have_no_records(herd: Herd) -> None:
    """Weeks of deaths do not grow its memory: after a round without a record of theirs they are forgotten."""
    sweep = GoneSweep(herd.segment)
    for _ in range(3):
        gone(herd, 2)
        sweep.step(DIED + 1, retention_seconds=0, budget=ALL)
    assert len(sweep._gone_since) == 1
    sweep.step(DIED + 1, retention_seconds=0, budget=ALL)
    assert sweep._gone_since == {}


def test_tags_that_killed_workers_left_are_cleared(herd: Herd) -> None:
    """An empty slot's tag goes, a claimed slot's stays."""
    herd.play(herd.register())
    kept = herd.segment.table.try_claim(b"kept", now=DIED)
    left = herd.segment.table.try_claim(b"left", now=DIED)
    herd.segment.words[left.slot] = 0
    GoneSweep(herd.segment).step(DIED, retention_seconds=None, budget=ALL)
    table = herd.segment.table
    assert herd.segment.tags[table._tag_of(left.slot)] == 0
    assert herd.segment.tags[table._tag_of(kept.slot)] != 0


def test_one_record_is_retired_at_once(herd: Herd) -> None:
    """Whatever its age, told like the others, and only that one."""
    told: list[str] = []
    sweep = GoneSweep(herd.segment, retired=lambda digest, _: told.append(digest))
    gone(herd, 5)
    table = herd.segment.table
    digest = table.digest(b"gone-3")
    found = table.find(digest)
    assert found is not None
    assert found[1].prefix == "gon"
    assert sweep.retire(found[0])
    assert told == [digest.hex()]
    assert table.find(digest) is None
    assert table.count()[:2] == (0, 4)
    assert not sweep.retire(found[0])


def test_a_live_claim_is_not_retired_by_name_either(herd: Herd) -> None:
    """Nor a record whose slot has gone to another claim since it was found."""
    gone(herd, 1)
    table, sweep = herd.segment.table, GoneSweep(herd.segment)
    found = table.find(table.digest(b"gone-0"))
    assert found is not None
    herd.play(herd.register())
    handle = table.try_claim(b"gone-0", now=DIED, replace_gone=True)
    assert handle.slot == found[0].slot
    assert not sweep.retire(handle)
    assert not sweep.retire(found[0])
    assert table.count()[:2] == (1, 0)


def test_a_busy_stripe_is_said_and_changes_nothing(herd: Herd) -> None:
    """Held or in repair: the caller comes again."""
    gone(herd, 1)
    table, sweep = herd.segment.table, GoneSweep(herd.segment)
    found = table.find(table.digest(b"gone-0"))
    assert found is not None
    semaphore = herd.segment.stripes.semaphores[0]
    semaphore.acquire(0)
    with pytest.raises(StripeBusy):
        sweep.retire(found[0])
    semaphore.release()
    herd.segment.words[flag_word(0)] = 1
    with pytest.raises(StripeBusy):
        sweep.retire(found[0])
    herd.segment.words[flag_word(0)] = 0
    assert sweep.retire(found[0])


def test_a_claim_that_ends_while_it_is_found_is_none(herd: Herd, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found and what names it belong together: the slot is read again after its control word."""
    herd.play(herd.register())
    table = herd.segment.table
    handle = table.try_claim(b"session", now=DIED)
    search = table._search

    def ends_meanwhile(*place: Any) -> Any:
        found = search(*place)
        table.try_release(handle)
        return found

    monkeypatch.setattr(table, "_search", ends_meanwhile)
    assert table.find(table.digest(b"session")) is None
