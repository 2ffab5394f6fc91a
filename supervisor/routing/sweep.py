"""Ends the claims whose time is up, in the background: also when no request comes any more."""

from __future__ import annotations

import asyncio
import logging
import time

from supervisor.routing.claims import Claims

logger = logging.getLogger("gym_supervise.router")

SWEEP_SECONDS = 0.5
AT_ONCE = 100  # claims given back before requests get their turn; each takes some 10 us
AUDIT_SECONDS = 300.0


async def sweep(claims: Claims) -> None:
    """Sweep for as long as the worker runs."""
    audit_at = time.monotonic() + AUDIT_SECONDS
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        try:
            await sweep_once(claims, time.monotonic())
            if time.monotonic() >= audit_at:
                audit_at = time.monotonic() + AUDIT_SECONDS
                if lost := claims.audit():
                    logger.warning("%d claims of this worker had no session; they were given back", lost)
        except Exception:
            logger.exception("claims whose time is up could not be ended; they are tried again")


async def sweep_once(claims: Claims, now: float) -> None:
    """End what is due at `now`, in monotonic seconds."""
    while due := claims.book.due(now, AT_ONCE):
        for own in due:
            claims.give_back(own)
        await asyncio.sleep(0)
