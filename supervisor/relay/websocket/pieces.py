"""A WebSocket's message that came in pieces."""

from __future__ import annotations


def join(pieces: list[bytes], data: bytes) -> bytes:
    """The message of which `data` is the last piece; `pieces` is empty afterwards."""
    if not pieces:
        return data
    pieces.append(data)
    data = b"".join(pieces)
    pieces.clear()
    return data
