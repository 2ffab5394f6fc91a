"""Taking and giving back claims from an event loop: the table tries once, and what waits here is awaited.

The table never sleeps; a stripe that is busy or under repair is tried again after a growing pause, until
`claim_seconds` are over. Between the commit of a claim and its entry in the book there is no await, nor between the
emptying of a slot and its leaving the book: for this worker the two are one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from typing import Protocol

from server_adapters.adapter import Life
from shmclaims import (
    AlreadyClaimed,
    Claim,
    ClaimState,
    ClaimTable,
    ClaimTimeout,
    Handle,
    OwnRow,
    StripeBusy,
    TableFull,
    WorkerRing,
)
from supervisor.routing.rule import ClaimFact
from supervisor.routing.sessions import Book, Owned

logger = logging.getLogger("gym_supervise.router")

FIRST_PAUSE_SECONDS = 0.0002
LONGEST_PAUSE_SECONDS = 0.02  # ordinary contention ends within 13 ms; a repair within 21 ms
RETRY_SECONDS = 0.05  # for claims to give back, which nobody waits for
WARN_SHARE = 0.8  # of max_sessions; the warning comes again after a fall below the calm share
CALM_SHARE = 0.6
MOST_SIGHTED = 4096  # other workers' claims whose places are remembered
TOUCH_SECONDS = 1.0  # last use is shown in whole seconds


class Claims(Protocol):
    """How the router holds sessions; with one worker nobody else could claim them, and no table is needed."""

    book: Book

    def owner(self, session: str) -> int | None:
        """The live worker, another than this one, that owns a session now; None: none, or it takes `find` to say."""

    async def find(self, session: str) -> ClaimFact | None:
        """What the table says of a session that is not in the book. Raises ClaimTimeout."""

    async def take(self, session: str, *, start: bool = False, replace_gone: bool = False) -> Owned:
        """Claim a session for this worker, or find it in the book.

        Raises AlreadyClaimed, ClaimGone, TableFull, ClaimTimeout (see shmclaims).
        """

    def give_back(self, own: Owned) -> bool:
        """End a claim now if nobody uses it; False: later (the book tries again)."""

    def touch(self, own: Owned, now: float) -> None:
        """Note that the session was used."""

    def publish(self) -> None:
        """Show the book's counts to the other workers and to operators."""

    def audit(self) -> int:
        """Give back claims of this worker that its book lacks: an exception came between their commit and their entry.

        Returns how many. Reads every slot's head, so it is for the sweep to call now and then.
        """


class SharedClaims:
    """Claims in the shared table, for one of several workers."""

    def __init__(
        self,
        table: ClaimTable,
        ring: WorkerRing,
        row: OwnRow,
        life: Life,
        *,
        incarnation: int,
        max_sessions: int,
        claim_seconds: float,
        book: Book | None = None,
    ) -> None:
        self.book = Book(life) if book is None else book
        self._table = table
        self._ring = ring
        self._row = row
        self._me = incarnation
        self._max_sessions = max_sessions
        self._claim_seconds = claim_seconds
        self._published = (0, 0, 0)
        self._warned_at = 0
        self.recycled = 0
        self._sighted: dict[str, tuple[Handle, Claim]] = {}

    def owner(self, session: str) -> int | None:
        # A claim that stands where it was seen is the same claim: looking there costs a tenth of a look-up.
        sighted = self._sighted.get(session)
        if sighted is None or not self._table.stands(sighted[0]):
            sighted = self._table.find(self._table.digest(session.encode()))
            if sighted is None:
                self._sighted.pop(session, None)
                return None
            if len(self._sighted) >= MOST_SIGHTED:
                self._sighted.clear()
            self._sighted[session] = sighted
        incarnation = sighted[1].incarnation
        return incarnation if incarnation != self._me and self._ring.is_live(incarnation) else None

    async def find(self, session: str) -> ClaimFact | None:
        key = session.encode()
        turns: Turns | None = None
        while True:
            try:
                claim = self._table.lookup(key)
            except StripeBusy:
                # The slot is torn for longer than a writer takes, and its stripe is in repair.
                turns = turns or Turns(session, self._claim_seconds)
                await turns.wait()
            else:
                return None if claim is None else ClaimFact(claim.incarnation, claim.state is ClaimState.LIVE)

    async def take(self, session: str, *, start: bool = False, replace_gone: bool = False) -> Owned:
        key = session.encode()
        turns: Turns | None = None
        while True:
            own = self.book.get(session)
            if own is not None:
                return own
            self._check_room(start=start)
            try:
                handle = self._table.try_claim(key, now=time.time(), replace_gone=replace_gone)
            except StripeBusy:
                pass
            except AlreadyClaimed as taken:
                # A claim of this worker's own that its book lacks was left by an exception: `audit` gives it back.
                if taken.claim.incarnation != self._me:
                    raise
            else:
                return self._enter(session, handle)
            turns = turns or Turns(session, self._claim_seconds)
            await turns.wait()

    async def adopt(self, own: Owned) -> None:
        """Claim a session that this worker has held without a claim, while it was alone.

        Raises TableFull, ClaimTimeout.
        """
        key = own.session.encode()
        turns: Turns | None = None
        while own.handle is None and self.book.get(own.session) is own:
            try:
                # A gone record of the id is older than this session: nobody asked the table while one worker was alone.
                own.handle = self._table.try_claim(key, now=time.time(), replace_gone=True)
            except StripeBusy:
                turns = turns or Turns(own.session, self._claim_seconds)
                await turns.wait()

    def give_back(self, own: Owned) -> bool:
        if own.in_flight:
            return False
        try:
            if own.handle is not None:
                self._table.try_release(own.handle)
        except StripeBusy:
            self.book.retry(own, time.monotonic() + RETRY_SECONDS)
            return False
        self.book.remove(own)
        self.publish()
        return True

    def touch(self, own: Owned, now: float) -> None:
        if own.handle is not None and now - own.touched_at >= TOUCH_SECONDS:
            own.touched_at = now
            self._table.touch(own.handle, now=time.time())

    def audit(self) -> int:
        lost = self._table.audit([own.handle for own in self.book if own.handle is not None])
        for handle in lost:
            with contextlib.suppress(StripeBusy):
                self._table.try_release(handle)
        return len(lost)

    def _enter(self, session: str, handle: Handle) -> Owned:
        own = self.book.add(session, handle, time.monotonic())
        self.publish()
        if handle.recycled is not None:
            self.recycled += 1
            logger.warning(
                "the table needed the slot of gone session %s... of worker %d: its id can start empty now (%d so far)",
                handle.recycled.prefix,
                handle.recycled.index,
                self.recycled,
            )
        return own

    def publish(self) -> None:
        row, book = self._row, self.book
        counts = (len(book), book.open_sessions, book.unstarted)
        if counts == self._published:
            return
        self._published = counts
        row.set("claims", len(book))
        row.set("sessions", book.open_sessions)
        row.set("unseeded", book.unstarted)

    def _check_room(self, *, start: bool) -> None:
        claims, unstarted = self._ring.claim_totals()
        if claims >= WARN_SHARE * self._max_sessions > self._warned_at:
            logger.warning(
                "%d of %d sessions are open; raise claims.max_sessions before they are refused",
                claims,
                self._max_sessions,
            )
            self._warned_at = self._max_sessions
        elif claims < CALM_SHARE * self._max_sessions:
            self._warned_at = 0
        if claims >= self._max_sessions:
            raise TableFull(f"{claims} sessions are open, as many as claims.max_sessions allows")
        if not start and unstarted >= max(1, self._max_sessions // 2):
            raise TableFull(
                f"{unstarted} sessions without a start are open; they may use half of claims.max_sessions"
                f" ({self._max_sessions}), so that they cannot crowd out starts"
            )


class Turns:
    """Pauses between tries for one stripe: they grow, and end with ClaimTimeout when `seconds` are over."""

    def __init__(self, session: str, seconds: float) -> None:
        self._session = session
        self._seconds = seconds
        self._pause = FIRST_PAUSE_SECONDS
        self._end = time.monotonic() + seconds

    async def wait(self) -> None:
        """Pause once."""
        if time.monotonic() >= self._end:
            raise ClaimTimeout(f"session {self._session[:8]}: no turn at its stripe within {self._seconds:g} s")
        await asyncio.sleep(self._pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads retries, hides nothing
        self._pause = min(self._pause * 1.6, LONGEST_PAUSE_SECONDS)
