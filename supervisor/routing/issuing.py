"""Claiming an id that the app has just given out, before its client learns it."""

from __future__ import annotations

import time

from server_adapters.adapter import Reading
from shmclaims import AlreadyClaimed, ClaimGone, ClaimTimeout, TableFull
from supervisor.routing.claims import Claims
from supervisor.routing.replies import Refusal
from supervisor.routing.sessions import Owned


async def claim_file(claims: Claims, name: str) -> Owned | None:
    """Claim a thing that the app's client is told of beside its session, and count the request in.

    None where another worker has the same thing, which is as good, or where it cannot be had: the app's message passes
    all the same, and what asks for the thing runs where it lands.
    """
    try:
        own = await claims.take(name, start=True, replace_gone=True)
    except (AlreadyClaimed, ClaimGone, TableFull, ClaimTimeout):
        return None
    claims.book.enter(own)
    own.kept = True
    claims.book.start(own, succeeded=False, now=time.monotonic())  # it is no session that placement should count
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
