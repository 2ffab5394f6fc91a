"""Claiming a session on behalf of a request: what the table refuses becomes a reply with a reason."""

from __future__ import annotations

from server_adapters.adapter import Reading
from shmclaims import ClaimGone, ClaimTimeout, TableFull, WorkerRing
from supervisor.routing.claims import Claims
from supervisor.routing.replies import Refusal, describe_gone
from supervisor.routing.rule import ClaimFact
from supervisor.routing.sessions import Owned


class Taker:
    """Claims sessions for one worker; everything but AlreadyClaimed, which callers follow, is a Refusal."""

    def __init__(self, claims: Claims, ring: WorkerRing) -> None:
        self._claims = claims
        self._ring = ring

    async def take(self, session: str, *, start: bool = False, replace_gone: bool = False) -> Owned:
        """Claim `session`, or find it in this worker's book."""
        try:
            return await self._claims.take(session, start=start, replace_gone=replace_gone)
        except ClaimGone as gone:
            raise self.gone(gone.claim.incarnation) from gone
        except TableFull as full:
            raise Refusal("table_full", str(full)) from full
        except ClaimTimeout as late:
            raise Refusal("claim_timeout", str(late)) from late

    async def find(self, session: str) -> ClaimFact | None:
        """What the table says of a session that is not in this worker's book."""
        try:
            return await self._claims.find(session)
        except ClaimTimeout as late:
            raise Refusal("claim_timeout", str(late)) from late

    def gone(self, incarnation: int) -> Refusal:
        """The session's worker has exited."""
        return Refusal("session_gone", describe_gone(self._ring, incarnation), owner=incarnation)

    def conflict(self, reading: Reading) -> Refusal:
        """The request names two sessions."""
        return Refusal("session_conflict", f"the request names different sessions: {', '.join(reading.conflict)}")
