"""Claiming an id that the app has just given out, before its client learns it."""

from __future__ import annotations

import time

from server_adapters.adapter import Reading
from shmclaims import AlreadyClaimed, ClaimGone, ClaimTimeout, TableFull
from supervisor.routing.claims import Claims
from supervisor.routing.replies import Refusal
from supervisor.routing.sessions import Owned


async def claim_file(claims: Claims, name: str) -> Owned:
    """Claim a thing that the app's client is told of beside its session, and count the request in.

    Where another worker has the same thing already, or no claim is to be had, it is in this worker's book alone: what
    asks for it here is served here, and elsewhere it is the other worker's. The claim ends with the last request in
    flight: the page's WebSocket is one, and after it the app may drop the thing.
    """
    now = time.monotonic()
    try:
        own = await claims.take(name, start=True, replace_gone=True)
    except (AlreadyClaimed, ClaimGone, TableFull, ClaimTimeout):
        own = claims.book.get(name) or claims.book.add(name, None, now)
    claims.book.enter(own)
    claims.book.start(own, succeeded=False, now=now)  # it is no session that placement should count
    claims.book.release(own, now)
    return own


async def claim_issued(claims: Claims, reading: Reading, session: str) -> Owned:
    """Claim it for the request that `reading` is of, and count that in.

    Raises:
        Refusal: it cannot be had; the app's message with it must be withheld.

    """
    try:
        issued = await claims.take(session, start=reading.starts)
    except (AlreadyClaimed, ClaimGone) as taken:
        detail = "the app gave out a session id that another worker holds; its reply was withheld"
        raise Refusal("session_conflict", detail, owner=taken.claim.incarnation) from taken
    except TableFull as full:
        raise Refusal("table_full", f"{full}; the app had run, its reply was withheld") from full
    except ClaimTimeout as late:
        raise Refusal("claim_timeout", f"{late}; the app had run, its reply was withheld") from late
    claims.book.enter(issued)
    issued.kept = True
    if reading.lasts:
        claims.book.start(issued, succeeded=True, now=time.monotonic())
    return issued
