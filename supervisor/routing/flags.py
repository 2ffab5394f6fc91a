"""What an adapter saw in a request, as bits for the owner: it need not read the head again."""

from __future__ import annotations

from typing import Any

import msgspec

from server_adapters.adapter import Reading

STARTS = 1
ENDS = 2
STAYS_OPEN = 4
MINTED = 8
REPLACES_GONE = 16
TYPED = 32
WANTS_REPLY_BODY = 64
VOUCHED = 128
MINTS = 256
STATELESS = 512
LASTS = 1024
FINAL = 2048  # of the placement, not of the reading
LEFT = 4096  # of a start, whose client went away before the app ran

NOT_PLAIN = STARTS | ENDS | STAYS_OPEN | MINTED | WANTS_REPLY_BODY | MINTS | LASTS
"""None of these: `Reading.plain`."""

_STAMP_BIT = 16  # from here on: when the order of a start was given, in ms of the monotonic clock; 0: not said


def pack(reading: Reading, *, minted: bool = False, final: bool = False) -> int:
    """The bits of a reading; `minted` says that the session is one that the router has just made, `final` that a placed
    start is to be taken wherever there is more room by now.
    """
    bits = VOUCHED if reading.vouched else 0
    if reading.starts:
        bits |= STARTS
    if reading.ends:
        bits |= ENDS
    if reading.stays_open:
        bits |= STAYS_OPEN
    if reading.replaces_gone:
        bits |= REPLACES_GONE
    if reading.typed:
        bits |= TYPED
    if reading.wants_reply_body:
        bits |= WANTS_REPLY_BODY
    if reading.mints:
        bits |= MINTS
    if reading.stateless:
        bits |= STATELESS
    if reading.lasts:
        bits |= LASTS
    if minted:
        bits |= MINTED
    if final:
        bits |= FINAL
    return bits


def stamped(bits: int, now: float) -> int:
    """The bits, and when they were sent, by the clock that all processes of a machine share."""
    return bits | int(now * 1000) << _STAMP_BIT


def age_seconds(bits: int, now: float) -> float:
    """How long ago they were sent; 0 where they do not say."""
    stamp = bits >> _STAMP_BIT
    return now - stamp / 1000 if stamp else 0.0


def unpack(bits: int, session: str | None) -> Reading:
    """A reading with what the owner needs of it; a minted id is not one that the client has named."""
    bits &= (1 << _STAMP_BIT) - 1
    fields = _known.get(bits)
    if fields is None:
        _known[bits] = fields = _fields(bits)
    return Reading(None if bits & MINTED else session, *fields)


# A reading's fields behind its session, by their bits: there are few kinds of requests.
_known: dict[int, tuple[Any, ...]] = {}


def _fields(bits: int) -> tuple[Any, ...]:
    reading = Reading(
        starts=bool(bits & STARTS),
        ends=bool(bits & ENDS),
        stays_open=bool(bits & STAYS_OPEN),
        mints=bool(bits & MINTS),
        replaces_gone=bool(bits & REPLACES_GONE),
        typed=bool(bits & TYPED),
        wants_reply_body=bool(bits & WANTS_REPLY_BODY),
        vouched=bool(bits & VOUCHED),
        stateless=bool(bits & STATELESS),
        lasts=bool(bits & LASTS),
    )
    return msgspec.structs.astuple(reading)[1:]
