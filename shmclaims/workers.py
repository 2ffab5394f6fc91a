"""The ring of worker rows: who lives, what each is about to lock, and its counters.

Ownership is an incarnation, a number that the supervisor hands out once and that is never a pid. Row `incarnation %
256` belongs to it until the row is given to a later one, which happens only when it is dead and its stripe is
repaired; an incarnation that no row names is gone.

Why unlocked reads are safe: each word has one writer. The supervisor writes state, pid, index, times, exit and reason
(these two before the state says DEAD, and nobody reads them earlier); the worker writes its intent, heartbeat and
counters (the supervisor clears an intent only when its worker is dead or has marked it abandoned). The state word holds
the incarnation as well, so one load says whose row it is and whether it lives. A stale read of the state costs a
request relayed to a worker that has just died; a stale counter costs a slightly worse placement.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from shmclaims.layout import (
    COUNTERS,
    EXIT_SIGNAL,
    MAX_EXIT,
    MAX_INCARNATION,
    NEXT_INCARNATION_WORD,
    REASON_BYTES,
    REASON_WORDS,
    RING_END_WORD,
    RING_WORD,
    ROW_WORDS,
    ROWS,
    SEAT_WORDS,
    SEATS,
    SEATS_WORD,
    Row,
    RowState,
    SeatState,
    row_word,
)

_STATE, _INTENT, _INDEX, _SESSIONS = Row.STATE.value, Row.INTENT.value, Row.INDEX.value, Row.SESSIONS.value
_FREE, _READY, _DEAD = RowState.FREE.value, RowState.READY.value, RowState.DEAD.value
_CLAIMS, _UNSEEDED, _CONNECTIONS = Row.CLAIMS.value, Row.UNSEEDED.value, Row.CONNECTIONS.value
_REQUESTS, _RELAYED_OUT, _RELAYED_IN = Row.REQUESTS.value, Row.RELAYED_OUT.value, Row.RELAYED_IN.value
_IN_FLIGHT = Row.IN_FLIGHT.value
_HEARTBEAT, _HEARTBEAT_AT = Row.HEARTBEAT.value, Row.HEARTBEAT_AT.value
_EXIT, _REASON, _RSS_BYTES = Row.EXIT.value, Row.REASON.value, Row.RSS_BYTES.value
_TEXT = struct.Struct(f"={REASON_WORDS}Q")
_ROW_AT = tuple(row_word(number) for number in range(ROWS))
COUNTER_MASK = (1 << 64) - 1


class RingFull(Exception):
    """Every row is live or waits for its stripe's repair."""


class RowView(NamedTuple):
    """A row as it was read; times of start and death in wall seconds (0: not yet), heartbeat_at in monotonic ms.

    exit_status   of a dead worker, or the signal's number, negative; None: it lives, or nobody has noted it
    reason        why the supervisor ended it, when it did; of a dead worker
    """

    incarnation: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    state: RowState
    pid: int
    started_at: int
    died_at: int
    heartbeat: int
    heartbeat_at: int
    sessions: int
    claims: int
    unseeded: int
    in_flight: int
    requests: int
    relayed_out: int
    relayed_in: int
    connections: int
    rss_bytes: int
    exit_status: int | None = None
    reason: str = ""


class SeatView(NamedTuple):
    """What a worker index is up to; `incarnation` is its latest (0: none yet)."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    state: SeatState
    incarnation: int
    restarts: int


class OwnRow:
    """A worker's own counters and heartbeat. For one thread: an addition is a load and a store."""

    def __init__(self, words: memoryview, incarnation: int) -> None:
        self._words = words
        self._row = row_word(incarnation)

    def add(self, counter: str, amount: int) -> None:
        """Add `amount` (may be negative) to a counter of `RowView`."""
        word = self._row + COUNTERS[counter]
        self._words[word] = (self._words[word] + amount) & COUNTER_MASK

    def enter(self) -> None:
        """A request begins that came in here."""
        words, row = self._words, self._row
        words[row + _REQUESTS] += 1
        words[row + _IN_FLIGHT] += 1

    def enter_relayed(self) -> None:
        """A request begins that another worker has relayed to this one."""
        words, row = self._words, self._row
        words[row + _RELAYED_IN] += 1
        words[row + _IN_FLIGHT] += 1

    def relay(self) -> None:
        """A request goes to another worker."""
        self._words[self._row + _RELAYED_OUT] += 1

    def leave(self) -> None:
        """A request is over."""
        self._words[self._row + _IN_FLIGHT] -= 1

    def set(self, counter: str, value: int) -> None:
        """Set a counter of `RowView`."""
        self._words[self._row + COUNTERS[counter]] = value

    def beat(self, now: float) -> None:
        """One heartbeat; `now` in monotonic seconds."""
        self._words[self._row + _HEARTBEAT] += 1
        self._words[self._row + _HEARTBEAT_AT] = int(now * 1000)


class WorkerRing:
    """The rows and seats of one segment."""

    def __init__(self, words: memoryview) -> None:
        self._words = words

    # ---- the supervisor

    def register(self, index: int, *, now: float) -> int:
        """Give a worker about to be forked its incarnation; its row is BOOTING, and live, from here on.

        Args:
            index: the worker's index, 0 to 255
            now: wall seconds

        Raises:
            RingFull: no row is dead and repaired
            ValueError: `index` out of range

        """
        _check_index(index)
        words = self._words
        first = words[NEXT_INCARNATION_WORD]
        for incarnation in range(first, min(first + ROWS, MAX_INCARNATION + 1)):
            row = row_word(incarnation)
            if not self.is_live(words[row] >> 8) and not words[row + _INTENT]:
                break
        else:
            raise RingFull(f"no worker row is free: found {ROWS} that are live or in repair")
        words[NEXT_INCARNATION_WORD] = incarnation + 1
        words[row] = 0  # from here on the row's former worker is gone by absence
        for word in range(row + 1, row + ROW_WORDS):
            words[word] = 0
        words[row + _INDEX] = index
        words[row + Row.STARTED_AT] = int(now)
        words[row] = incarnation << 8 | RowState.BOOTING
        return incarnation

    def set_pid(self, incarnation: int, pid: int) -> None:
        """Note the worker's pid, for people."""
        self._words[self._held(incarnation) + Row.PID] = pid

    def set_state(self, incarnation: int, state: RowState) -> None:
        """Move a live worker to another live state. Raises LookupError for a dead one."""
        if state in (RowState.FREE, RowState.DEAD):
            msg = f"row state: found {state.name}, expected a live one; a worker dies by mark_dead"
            raise ValueError(msg)
        row = self._held(incarnation)
        if self._words[row] & 255 == _DEAD:
            msg = f"incarnation {incarnation} is dead: a live state would bring its claims back"
            raise LookupError(msg)
        self._words[row] = incarnation << 8 | state

    def note_reason(self, incarnation: int, text: str) -> None:
        """Say why a worker is about to be ended; its first 80 bytes are kept, for whoever asks after its death."""
        row = self._held(incarnation)
        data = text.encode("utf-8", "replace")[:REASON_BYTES].decode("utf-8", "ignore").encode()
        for number, word in enumerate(_TEXT.unpack(data.ljust(REASON_BYTES, b"\0"))):
            self._words[row + _REASON + number] = word

    def mark_dead(self, incarnation: int, *, now: float, status: int | None = None) -> None:
        """One store, and all its claims are gone; only after waitid has shown the exit.

        Args:
            incarnation: whose
            now: wall seconds
            status: its exit status, 0 to 255, or the number of the signal that killed it, negative; None: not known

        """
        row = self._held(incarnation)
        if status is not None:
            self._words[row + _EXIT] = min(1 + status if status >= 0 else EXIT_SIGNAL - status, MAX_EXIT)
        self._words[row + Row.DIED_AT] = int(now)
        self._words[row] = incarnation << 8 | _DEAD

    def set_seat(self, index: int, state: SeatState, *, incarnation: int, restarts: int) -> None:
        """Say what a worker index (0 to 255) is up to."""
        _check_index(index)
        word = SEATS_WORD + index * SEAT_WORDS
        self._words[word + 1] = restarts
        self._words[word] = incarnation << 8 | state

    def _held(self, incarnation: int) -> int:
        row = row_word(incarnation)
        if self._words[row] >> 8 != incarnation:
            msg = f"incarnation {incarnation} has no row: found {self._words[row] >> 8} in its place"
            raise LookupError(msg)
        return row

    # ---- everybody

    def is_live(self, incarnation: int) -> bool:
        """Whether the incarnation lives: the one judge of it, for lookup, claim, repair, sweep and register alike."""
        word: int = self._words[_ROW_AT[incarnation % ROWS]]
        return _FREE < word - (incarnation << 8) < _DEAD  # another incarnation's word is 256 away or more

    def row(self, incarnation: int) -> RowView | None:
        """The incarnation's row, or None when the ring has forgotten it."""
        view = self._view(row_word(incarnation))
        return view if view is not None and view.incarnation == incarnation else None

    def rows(self) -> list[RowView]:
        """Every row in use, dead ones included, by incarnation."""
        views = (self._view(row) for row in range(RING_WORD, RING_END_WORD, ROW_WORDS))
        return sorted(view for view in views if view is not None)

    def seats(self) -> list[SeatView]:
        """Every worker index that is not EMPTY."""
        found = []
        words = self._words[SEATS_WORD : SEATS_WORD + SEATS * SEAT_WORDS].tolist()
        for index in range(SEATS):
            word, restarts = words[index * SEAT_WORDS], words[index * SEAT_WORDS + 1]
            if word & 255:
                found.append(SeatView(index, SeatState(word & 255), word >> 8, restarts))
        return found

    def candidates(self, *, beaten_since: float = 0.0) -> list[tuple[int, int, int]]:
        """(incarnation, index, open sessions) of every READY worker: what placement chooses from.

        One whose last heartbeat is older than `beaten_since`, monotonic seconds, is taken for stalled and left out.
        """
        words = self._words
        oldest = int(beaten_since * 1000)
        found = []
        for number, word in enumerate(words[RING_WORD:RING_END_WORD:ROW_WORDS].tolist()):
            if word & 255 == _READY:
                row = RING_WORD + number * ROW_WORDS
                if not 0 < words[row + _HEARTBEAT_AT] < oldest:
                    found.append((word >> 8, words[row + _INDEX], words[row + _SESSIONS]))
        return found

    def claim_totals(self) -> tuple[int, int]:
        """(claims, those without a start) over all live workers: what the limits are compared with."""
        words = self._words
        claims = unseeded = 0
        for number, word in enumerate(words[RING_WORD:RING_END_WORD:ROW_WORDS].tolist()):
            if _FREE < word & 255 < _DEAD:
                row = RING_WORD + number * ROW_WORDS
                claims += words[row + _CLAIMS]
                unseeded += words[row + _UNSEEDED]
        return claims, unseeded

    def other_connections(self, me: int, *, beaten_since: float) -> list[int]:
        """The words with the connection counts of every READY worker, other than `me`, whose event loop turns.

        `beaten_since` is in monotonic seconds: one whose last heartbeat is older is taken for stalled. The places may
        be kept for a moment: what stands at one whose worker has died meanwhile is only its last count.
        """
        words = self._words
        oldest = int(beaten_since * 1000)
        found = []
        for number, word in enumerate(words[RING_WORD:RING_END_WORD:ROW_WORDS].tolist()):
            if word & 255 == _READY and word >> 8 != me:
                row = RING_WORD + number * ROW_WORDS
                if not 0 < words[row + _HEARTBEAT_AT] < oldest:
                    found.append(row + _CONNECTIONS)
        return found

    def fewest_connections(self, places: Sequence[int]) -> int:
        """The least of the counts at some of `other_connections`' places, of which there is one at least."""
        words = self._words
        fewest: int = min([words[place] for place in places])
        return fewest

    def intents(self) -> list[tuple[int, int]]:
        """(row word, intent) of every row whose intent is set."""
        column = self._words[RING_WORD + _INTENT : RING_END_WORD : ROW_WORDS].tolist()
        return [(RING_WORD + number * ROW_WORDS, intent) for number, intent in enumerate(column) if intent]

    def own(self, incarnation: int) -> OwnRow:
        """The writer of a worker's own counters; for the worker alone."""
        return OwnRow(self._words, incarnation)

    def _view(self, row: int) -> RowView | None:
        while True:
            word, *fields = self._words[row : row + ROW_WORDS].tolist()
            if word == self._words[row]:
                break  # else the row has just changed hands
        if not word & 255:
            return None
        at = [fields[number - 1] for number in (Row.INDEX, Row.PID, Row.STARTED_AT, Row.DIED_AT)]
        rest = fields[_HEARTBEAT - 1 : _RSS_BYTES]
        said = (_status(fields), _reason(fields)) if word & 255 == _DEAD else (None, "")
        return RowView._make((word >> 8, at[0], RowState(word & 255), *at[1:], *rest, *said))

    def __repr__(self) -> str:
        live = sum(self.is_live(view.incarnation) for view in self.rows())
        return f"<WorkerRing live={live} next={self._words[NEXT_INCARNATION_WORD]}>"


def _status(fields: list[int]) -> int | None:
    found = fields[_EXIT - 1]
    return None if not found else EXIT_SIGNAL - found if found > EXIT_SIGNAL else found - 1


def _reason(fields: list[int]) -> str:
    data = _TEXT.pack(*fields[_REASON - 1 : _REASON - 1 + REASON_WORDS])
    return data.partition(b"\0")[0].decode("utf-8", "replace")


def _check_index(index: int) -> None:
    if not 0 <= index < SEATS:
        msg = f"worker index: found {index}, expected 0 to {SEATS - 1}"
        raise ValueError(msg)
