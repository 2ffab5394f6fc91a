"""A worker without siblings holds its sessions in its book alone: nobody else could claim them, and no table is needed.

Before it gets a sibling it hands them over: from then on each of its sessions is claimed like any other.
"""

from __future__ import annotations

import asyncio
import time

from server_adapters.adapter import Life
from shmclaims import OwnRow
from supervisor.routing.claims import SharedClaims
from supervisor.routing.rule import ClaimFact
from supervisor.routing.sessions import Book, Owned

AT_ONCE = 100  # sessions claimed before requests get their turn


class SoloClaims:
    """Claims without a table, until `share`."""

    def __init__(self, row: OwnRow, life: Life) -> None:
        self.book = Book(life)
        self._row = row
        self._shared: SharedClaims | None = None

    async def share(self, shared: SharedClaims) -> None:
        """Hand the book over: when this returns, the table has a claim for each session that this worker holds.

        `shared` has this book. Requests go on meanwhile: new sessions are claimed from the first moment on, so that
        only those that were there before are left to be claimed one by one.

        Raises TableFull, ClaimTimeout: call it again, or stay alone; what is claimed by then stays so.
        """
        self._shared = shared
        for number, own in enumerate(list(self.book), 1):
            await shared.adopt(own)
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
        shared.publish()

    def owner(self, session: str) -> int | None:
        return None if self._shared is None else self._shared.owner(session)

    async def find(self, session: str) -> ClaimFact | None:
        return None if self._shared is None else await self._shared.find(session)

    async def take(self, session: str, *, start: bool = False, replace_gone: bool = False) -> Owned:
        if self._shared is not None:
            return await self._shared.take(session, start=start, replace_gone=replace_gone)
        own = self.book.get(session)
        if own is None:
            own = self.book.add(session, None, time.monotonic())
            self.publish()
        return own

    def give_back(self, own: Owned) -> bool:
        if self._shared is not None:
            return self._shared.give_back(own)
        if own.in_flight:
            return False
        self.book.remove(own)
        self.publish()
        return True

    def touch(self, own: Owned, now: float) -> None:
        if self._shared is not None:
            self._shared.touch(own, now)

    def publish(self) -> None:
        if self._shared is not None:
            self._shared.publish()
        else:
            self._row.set("sessions", self.book.open_sessions)

    def audit(self) -> int:
        return 0 if self._shared is None else self._shared.audit()
