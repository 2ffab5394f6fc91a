"""What this worker owns: its sessions, their requests in flight, and when each claim ends. Pure; time is passed in.

A session is known here exactly while this worker holds its claim: it enters the book in the same step in which the
claim is committed, and leaves it in the same step in which the slot is emptied, with no await between. So a look-up in
this dict is as good as one in the table, at a tenth of the price.

    state      came from                                   its claim ends
    open       a start whose reply was 2xx and complete    never, or after `open_idle_seconds` without a request
    ended      an end route, an expired cookie,            `window_seconds` after its last request
               a start that failed
    unstarted  an id without a start                       `idle_seconds` after its last request
    unkept     the same, and no reply gave the client      with the request that made the claim
               the id

No claim ends while a request for its session is in flight.
"""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Any

from server_adapters.adapter import Life

logger = logging.getLogger("gym_supervise.router")


class Owned:
    """One session of this worker. `handle` is its claim in the table; None where no other worker could ask for it.

    `on_end` is what the app wants to be called when the claim ends.
    """

    __slots__ = (
        "closed_at",
        "closes",
        "deadline",
        "ended_at",
        "handle",
        "in_flight",
        "kept",
        "on_end",
        "open",
        "queued_at",
        "released",
        "session",
        "started",
        "succeeded",
        "touched_at",
        "visits",
    )

    def __init__(self, session: str, handle: Any, now: float) -> None:
        self.session = session
        self.handle = handle
        self.in_flight = 0
        self.visits = 0
        self.closes = 0
        self.open = False
        self.started = False
        self.succeeded = False
        self.kept = False
        self.released = False
        self.ended_at: float | None = None
        self.closed_at: float | None = None
        self.deadline: float | None = None
        self.queued_at: float | None = None
        self.touched_at = now
        self.on_end: tuple[Callable[[], object], ...] = ()

    def __repr__(self) -> str:
        state = "open" if self.open else "ended" if self.ended_at is not None else "unstarted"
        return f"<Owned {self.session[:8]} {state} in_flight={self.in_flight} deadline={self.deadline}>"


class Book:
    """The sessions that this worker owns, by id.

    `open_sessions` counts those that have not ended, which is what placement compares; `unstarted` counts those
    without a start, which may use only a part of the table.
    """

    def __init__(self, life: Life) -> None:
        self.life = life
        self.open_sessions = 0
        self.unstarted = 0
        self._owned: dict[str, Owned] = {}
        self.get = self._owned.get
        self._due: list[tuple[float, int, Owned]] = []
        self._sequence = itertools.count()

    def __len__(self) -> int:
        return len(self._owned)

    def __iter__(self) -> Iterator[Owned]:
        return iter(self._owned.values())

    def __repr__(self) -> str:
        return f"<Book {len(self._owned)} sessions, {self.open_sessions} open, {self.unstarted} unstarted>"

    def add(self, session: str, handle: Any, now: float) -> Owned:
        """Enter a session whose claim has just been committed."""
        own = Owned(session, handle, now)
        self._owned[session] = own
        self.open_sessions += 1
        self.unstarted += 1
        return own

    def remove(self, own: Owned) -> None:
        """Take out a session whose claim has just ended."""
        if self._owned.get(own.session) is not own:
            return
        del self._owned[own.session]
        if own.ended_at is None:
            self.open_sessions -= 1
        if not own.started:
            self.unstarted -= 1
        for callback in own.on_end:
            try:
                callback()
            except Exception:
                logger.exception("session %s...: what the app wants to be called at its claim's end", own.session[:8])

    def enter(self, own: Owned) -> bool:
        """One request for the session begins; True when it is the first since the claim was made."""
        own.in_flight += 1
        own.visits += 1
        return own.visits == 1

    def leave(self, own: Owned, now: float) -> bool:
        """One request for the session is over. True when the claim ends with it: give it back at once."""
        own.in_flight -= 1
        if own.in_flight:
            return False
        if own.released or not (own.kept or own.started or own.ended_at is not None):
            return True
        self._set_deadline(own, now)
        return False

    def start(self, own: Owned, *, succeeded: bool, now: float) -> None:
        """A start has returned: the session is open, or, after a failed start, kept for the window."""
        if not own.started:
            own.started = True
            self.unstarted -= 1
        if succeeded:
            if own.ended_at is not None:
                own.ended_at = None
                self.open_sessions += 1
            own.open = True
            own.released = False
            own.closed_at = None
        elif not own.open:
            self.end(own, now)

    def end(self, own: Owned, now: float) -> None:
        """An end has returned, or a reply took the session's name away."""
        own.open = False
        if own.ended_at is None:
            own.ended_at = now
            self.open_sessions -= 1

    def close(self, own: Owned, now: float) -> None:
        """An end that named the session itself: a late start of it can be told from a new one, for the window."""
        self.end(own, now)
        own.closes += 1
        if own.closed_at is None:
            own.closed_at = now

    def hold(self, own: Owned, now: float) -> None:
        """The app keeps the session open, whatever its routes say."""
        self.start(own, succeeded=True, now=now)

    def release(self, own: Owned, now: float) -> None:
        """The app is done with the session: its claim ends with its last request."""
        self.end(own, now)
        own.released = True

    def was_closed(self, own: Owned, now: float) -> bool:
        """Whether the session was closed within the window, counted from its first close."""
        return (
            self.life.remember_closed and own.closed_at is not None and now < own.closed_at + self.life.window_seconds
        )

    def forget(self, own: Owned) -> None:
        """A start that created nothing: `leave` gives its claim back."""
        own.kept = False
        if own.started:
            own.started = False
            self.unstarted += 1
        if own.ended_at is not None:
            own.ended_at = None
            self.open_sessions += 1

    def settled(self, now: float, linger_seconds: float) -> bool:
        """Whether every session has ended, and its last request is `linger_seconds` old, or as old as the window."""
        if self.open_sessions:
            return False
        window = self.life.window_seconds
        claims_end_early = max(window - linger_seconds, 0.0)
        return all(
            not own.in_flight and (own.deadline is None or own.deadline - claims_end_early <= now)
            for own in self._owned.values()
        )

    def due(self, now: float, most: int | None = None) -> list[Owned]:
        """The sessions whose claims end now, `most` of them: give their claims back at once, or `retry`."""
        found: list[Owned] = []
        while self._due and self._due[0][0] <= now and len(found) != most:
            at, _, own = heapq.heappop(self._due)
            if own.queued_at != at:
                continue  # a nearer deadline was queued later, and has come up before
            own.queued_at = None
            if self._owned.get(own.session) is not own or own.deadline is None or own.in_flight:
                continue  # with requests in flight, the last of them sets the next deadline
            if own.deadline > now:
                self._queue(own, own.deadline)
            else:
                found.append(own)
        return found

    def retry(self, own: Owned, at: float) -> None:
        """The claim could not be given back now; try again at `at`."""
        own.deadline = at
        self._queue(own, at)

    def _set_deadline(self, own: Owned, now: float) -> None:
        if own.open:
            seconds = self.life.open_idle_seconds
        elif own.ended_at is not None:
            seconds = self.life.window_seconds
            if not self.life.slides:
                now = own.ended_at
        else:
            seconds = self.life.idle_seconds
        own.deadline = None if seconds is None else now + seconds
        if own.deadline is not None:
            self._queue(own, own.deadline)

    def _queue(self, own: Owned, at: float) -> None:
        # A later deadline than the queued one is found when that comes up: one heap entry a session, not one a request.
        if own.queued_at is None or at < own.queued_at:
            own.queued_at = at
            heapq.heappush(self._due, (at, next(self._sequence), own))
