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

NOT_PLAIN = STARTS | ENDS | STAYS_OPEN | MINTED | WANTS_REPLY_BODY | MINTS | LASTS
"""None of these: `Reading.plain`."""


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


def unpack(bits: int, session: str | None) -> Reading:
    """A reading with what the owner needs of it; a minted id is not one that the client has named."""
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
