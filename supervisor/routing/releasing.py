"""Ending a claim on an operator's word, in the worker that holds it. Never under a request that is in flight."""

from __future__ import annotations

import time

from shmclaims import ClaimTable, Handle, StripeBusy
from supervisor.core.messages import Release, Released
from supervisor.routing.claims import Claims
from supervisor.routing.sessions import Owned


def release(order: Release, claims: Claims, table: ClaimTable) -> Released:
    """End the claim that is in a slot of the table, if it is still the one that was meant."""
    own = next((own for own in claims.book if _is_meant(own, order)), None)
    if own is None:
        return _release_unknown(order, table)
    if own.in_flight and not order.when_idle:
        return Released(order.ticket, "in_flight", own.in_flight)
    claims.book.release(own, time.monotonic())
    if own.in_flight or not claims.give_back(own):
        claims.publish()
        return Released(order.ticket, "ending", own.in_flight)
    return Released(order.ticket, "released")


def _is_meant(own: Owned, order: Release) -> bool:
    handle = own.handle
    return handle is not None and handle.slot == order.slot and handle.control == order.control


def _release_unknown(order: Release, table: ClaimTable) -> Released:
    """No session of this worker's: an exception left it, if it is still there. The audit would find it later."""
    try:
        ended = table.try_release(Handle(order.slot, order.control, order.stripe))
    except StripeBusy:
        return Released(order.ticket, "busy")
    return Released(order.ticket, "released" if ended else "unknown")
