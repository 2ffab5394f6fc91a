"""The ring: incarnations, who is live, reuse of rows, seats and counters."""

from __future__ import annotations

import pytest
from model.herd import Herd

from shmclaims import RingFull, RowState, SeatState, SeatView, Segment, check
from shmclaims.layout import COUNTERS, ROWS, SEATS, Row, row_word

NOW = 1_700_000_000.9


def test_a_new_row_is_booting_and_live(segment: Segment) -> None:
    """Registering hands out 1, 2, ...; the row is live before its process exists."""
    assert [segment.ring.register(index, now=NOW) for index in (4, 5)] == [1, 2]
    row = segment.ring.row(2)
    assert row is not None
    assert (row.index, row.state, row.pid, row.started_at, row.died_at) == (5, RowState.BOOTING, 0, int(NOW), 0)
    assert segment.ring.is_live(2)
    assert segment.ring.row(3) is None
    assert not segment.ring.is_live(3)
    assert not segment.ring.is_live(0)


@pytest.mark.parametrize(
    ("state", "live"),
    [
        (RowState.FREE, False),
        (RowState.BOOTING, True),
        (RowState.READY, True),
        (RowState.DRAINING, True),
        (RowState.STOPPING, True),
        (RowState.DEAD, False),
    ],
)
def test_who_is_live(segment: Segment, state: RowState, live: bool) -> None:
    """Live is every state between free and dead, of the very incarnation: neighbours in the same row are not."""
    incarnation = 5
    segment.words[row_word(incarnation)] = incarnation << 8 | state
    assert segment.ring.is_live(incarnation) is live
    for other in (incarnation - ROWS, incarnation + ROWS, incarnation + 1, incarnation - 1, 0):
        assert not segment.ring.is_live(other)
    segment.words[row_word(incarnation)] = 0


def test_death_is_one_word(segment: Segment) -> None:
    """A dead worker's row keeps its facts and its time of death, and takes no further state."""
    one = segment.ring.register(0, now=NOW)
    segment.ring.set_pid(one, 4321)
    segment.ring.mark_dead(one, now=NOW + 10)
    row = segment.ring.row(one)
    assert row is not None
    assert (row.state, row.pid, row.died_at) == (RowState.DEAD, 4321, int(NOW + 10))
    with pytest.raises(LookupError, match="bring its claims back"):
        segment.ring.set_state(one, RowState.READY)
    assert not segment.ring.is_live(one)


@pytest.mark.parametrize("status", [0, 3, 255, -9, -64, None])
def test_a_dead_row_says_how_it_ended(segment: Segment, status: int | None) -> None:
    """Its exit status or its signal, negative; nothing is said of a live one."""
    one = segment.ring.register(0, now=NOW)
    segment.ring.mark_dead(one, now=NOW, status=status)
    row = segment.ring.row(one)
    assert row is not None
    assert (row.exit_status, row.reason) == (status, "")
    assert check(segment) == []


def test_a_dead_row_says_why_it_was_ended(segment: Segment) -> None:
    """The supervisor's reason is kept, cut to its room on a character; it is shown once the worker is dead."""
    texts = {
        "was not ready": "was not ready",
        "": "",
        "\u00e9" * 60: "\u00e9" * 40,
        "x" + "\u00e9" * 60: "x" + "\u00e9" * 39,
    }
    for text, kept in texts.items():
        one = segment.ring.register(0, now=NOW)
        segment.ring.note_reason(one, text)
        alive = segment.ring.row(one)
        segment.ring.mark_dead(one, now=NOW, status=-9)
        dead = segment.ring.row(one)
        assert alive is not None
        assert dead is not None
        assert (alive.reason, dead.reason) == ("", kept)
    assert check(segment) == []


def test_a_state_is_never_set_to_dead_or_free(segment: Segment) -> None:
    """Death has one way in, mark_dead, which also notes its time."""
    one = segment.ring.register(0, now=NOW)
    for state in (RowState.DEAD, RowState.FREE):
        with pytest.raises(ValueError, match=state.name):
            segment.ring.set_state(one, state)
    assert segment.ring.is_live(one)


def test_an_unknown_incarnation_is_refused(segment: Segment) -> None:
    """A row that was never handed out, or has gone to a later worker, takes no writes."""
    with pytest.raises(LookupError, match="incarnation 7"):
        segment.ring.set_pid(7, 1)
    with pytest.raises(LookupError, match="incarnation 7"):
        segment.ring.set_state(7, RowState.READY)
    with pytest.raises(LookupError, match="incarnation 7"):
        segment.ring.mark_dead(7, now=NOW)
    with pytest.raises(ValueError, match="worker index"):
        segment.ring.register(SEATS, now=NOW)


def test_rows_are_reused_only_when_dead(segment: Segment) -> None:
    """256 live workers fill the ring; the one that dies gives its row to a higher incarnation."""
    handed = [segment.ring.register(number % SEATS, now=NOW) for number in range(ROWS)]
    with pytest.raises(RingFull, match="256"):
        segment.ring.register(0, now=NOW)
    segment.ring.mark_dead(handed[100], now=NOW)
    later = segment.ring.register(9, now=NOW)
    assert later == handed[100] + ROWS
    assert segment.ring.row(handed[100]) is None
    assert not segment.ring.is_live(handed[100])
    assert segment.ring.is_live(later)


def test_a_row_in_repair_is_not_reused(herd: Herd) -> None:
    """A dead worker's intent names the stripe it may have poisoned: its row waits for the repair."""
    ring = herd.segment.ring
    handed = [ring.register(0, now=NOW) for _ in range(ROWS)]
    herd.segment.words[row_word(handed[3]) + Row.INTENT] = 1
    ring.mark_dead(handed[3], now=NOW)
    herd.repair.begin(handed[3])
    with pytest.raises(RingFull):
        ring.register(0, now=NOW)
    herd.repair_all()
    assert ring.register(0, now=NOW) == handed[3] + ROWS


def test_a_claim_of_a_forgotten_incarnation_is_gone(herd: Herd) -> None:
    """When the ring has given the row away, the old worker's claims are gone, not the new worker's."""
    old = herd.register(0)
    herd.play(old, 0)
    herd.segment.table.try_claim(b"session", now=NOW)
    herd.segment.ring.mark_dead(old, now=NOW)
    while herd.segment.ring.row(old) is not None:
        newest = herd.register(0)
        if newest != old + ROWS:
            herd.segment.ring.mark_dead(newest, now=NOW)
    claim = herd.segment.table.lookup(b"session")
    assert claim is not None
    assert (claim.state, claim.incarnation) == ("gone", old)


def test_a_new_row_starts_from_zero(segment: Segment) -> None:
    """Nothing of the former worker shows in a reused row: neither counters nor heartbeat nor pid."""
    for _ in range(ROWS):
        one = segment.ring.register(1, now=NOW)
        segment.ring.set_pid(one, 99)
        own = segment.ring.own(one)
        own.beat(5.0)
        for counter in COUNTERS:
            own.set(counter, 7)
        segment.ring.mark_dead(one, now=NOW)
    row = segment.ring.row(segment.ring.register(2, now=NOW))
    assert row is not None
    assert (row.pid, row.died_at, row.heartbeat, row.heartbeat_at) == (0, 0, 0, 0)
    assert all(getattr(row, counter) == 0 for counter in COUNTERS)


def test_a_worker_counts_and_beats(segment: Segment) -> None:
    """Every counter of a row is the worker's to set and to add to, and the heartbeat counts."""
    one = segment.ring.register(0, now=NOW)
    own = segment.ring.own(one)
    for number, counter in enumerate(COUNTERS):
        own.set(counter, 10 + number)
        own.add(counter, 5)
        own.add(counter, -1)
    own.beat(12.3456)
    own.beat(13.0)
    row = segment.ring.row(one)
    assert row is not None
    assert {counter: getattr(row, counter) for counter in COUNTERS} == {
        counter: 14 + number for number, counter in enumerate(COUNTERS)
    }
    assert (row.heartbeat, row.heartbeat_at) == (2, 13000)
    with pytest.raises(KeyError):
        own.add("no such counter", 1)


def test_rows_lists_the_dead_as_well(segment: Segment) -> None:
    """Operators see every row in use, in the order of incarnations, the dead included."""
    for index in range(3):
        segment.ring.register(index, now=NOW)
    segment.ring.mark_dead(2, now=NOW)
    assert [(row.incarnation, row.state.name) for row in segment.ring.rows()] == [
        (1, "BOOTING"),
        (2, "DEAD"),
        (3, "BOOTING"),
    ]
    assert repr(segment.ring) == "<WorkerRing live=2 next=4>"


def test_placement_sees_ready_workers_alone(segment: Segment) -> None:
    """Candidates are the ready rows with their open sessions; booting, draining, stopping and dead ones are not."""
    ring = segment.ring
    states = [RowState.READY, RowState.BOOTING, RowState.READY, RowState.DRAINING, RowState.STOPPING]
    for index, state in enumerate(states):
        one = ring.register(index, now=NOW)
        ring.set_state(one, state)
        ring.own(one).set("sessions", 10 * one)
    dead = ring.register(5, now=NOW)
    ring.set_state(dead, RowState.READY)
    ring.mark_dead(dead, now=NOW)
    assert ring.candidates() == [(1, 0, 10), (3, 2, 30)]


def test_totals_and_fewest_count_the_right_workers(segment: Segment) -> None:
    """Claims are summed over every live worker; the fewest connections are those of another ready one that beats."""
    ring = segment.ring

    def fewest(me: int) -> int:
        return ring.fewest_connections(ring.other_connections(me, beaten_since=100.0))

    assert ring.other_connections(1, beaten_since=100.0) == []
    for index, state in enumerate([RowState.READY, RowState.READY, RowState.DRAINING, RowState.BOOTING]):
        one = ring.register(index, now=NOW)
        ring.set_state(one, state)
        for counter, value in (("claims", 100), ("unseeded", 10), ("connections", 5 - index)):
            ring.own(one).set(counter, value)
        ring.own(one).beat(100.0)
    dead = ring.register(4, now=NOW)
    ring.own(dead).set("claims", 1000)
    ring.mark_dead(dead, now=NOW)
    assert ring.claim_totals() == (400, 40)
    assert fewest(1) == 4
    assert fewest(2) == 5
    assert ring.other_connections(1, beaten_since=100.1) == []
    ring.own(2).beat(100.2)
    assert len(ring.other_connections(1, beaten_since=100.1)) == 1
    assert ring.other_connections(2, beaten_since=100.1) == []


def test_seats_tell_what_each_index_is_up_to(segment: Segment) -> None:
    """A seat shows its state, its latest incarnation and its restarts; an empty one is not listed."""
    ring = segment.ring
    one = ring.register(0, now=NOW)
    ring.set_seat(0, SeatState.BACKOFF, incarnation=one, restarts=3)
    ring.set_seat(2, SeatState.BOOTING, incarnation=0, restarts=0)
    assert ring.seats() == [SeatView(0, SeatState.BACKOFF, one, 3), SeatView(2, SeatState.BOOTING, 0, 0)]
    ring.set_seat(2, SeatState.EMPTY, incarnation=0, restarts=0)
    assert [seat.index for seat in ring.seats()] == [0]
    with pytest.raises(ValueError, match="worker index"):
        ring.set_seat(SEATS, SeatState.READY, incarnation=1, restarts=0)


def test_incarnations_are_never_handed_out_twice(segment: Segment) -> None:
    """The number goes on in the segment itself, past the end of the 32 bits it is refused."""
    from shmclaims.layout import MAX_INCARNATION, NEXT_INCARNATION_WORD

    segment.words[NEXT_INCARNATION_WORD] = MAX_INCARNATION
    assert segment.ring.register(0, now=NOW) == MAX_INCARNATION
    with pytest.raises(RingFull):
        segment.ring.register(0, now=NOW)
