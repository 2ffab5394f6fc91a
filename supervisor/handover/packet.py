"""What goes with a connection: for whom it is, and bytes that its new worker reads before the socket's own. Pure."""

from __future__ import annotations

import struct

_HEAD = struct.Struct("=4sQ")
MAGIC = b"GSh1"

MOST_FIRST_BYTES = 32 * 1024
"""Of a request's head; one that is larger is relayed."""

LONGEST = _HEAD.size + MOST_FIRST_BYTES


class BadPacket(ValueError):
    """Not what a worker of this release sends."""


def pack(owner: int, first: bytes) -> bytes:
    """One packet: `owner` is the incarnation that it is for, `first` what is read before the socket's own bytes."""
    assert len(first) <= MOST_FIRST_BYTES
    return _HEAD.pack(MAGIC, owner) + first


def unpack(packet: bytes, me: int) -> bytes:
    """The first bytes of a packet for incarnation `me`. Raises BadPacket."""
    if len(packet) < _HEAD.size:
        raise BadPacket(f"found {len(packet)} bytes, expected {_HEAD.size} at least")
    magic, owner = _HEAD.unpack_from(packet)
    if magic != MAGIC:
        raise BadPacket(f"found {magic!r} at its beginning, expected {MAGIC!r}")
    if owner != me:
        raise BadPacket(f"found one for worker {owner}, expected {me}")
    return packet[_HEAD.size :]
