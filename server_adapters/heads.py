"""The head of a request and of a reply, as an adapter sees them: header names in lower case, bytes as on the wire."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

Header = tuple[bytes, bytes]


class RequestHead(msgspec.Struct, frozen=True, gc=False):
    """One request's head.

    `path` is decoded and has root_path removed; `raw_path` and `query` are the bytes that the client sent.
    """

    method: str
    path: str
    raw_path: bytes
    query: bytes
    headers: Sequence[Header]
    websocket: bool = False

    def get(self, name: bytes) -> bytes | None:
        """The last header called `name` (lower case), or None."""
        found = None
        for key, value in self.headers:
            if key == name:
                found = value
        return found

    def get_all(self, name: bytes) -> list[bytes]:
        """Every header called `name` (lower case), in order."""
        return [value for key, value in self.headers if key == name]


class ResponseHead(msgspec.Struct, frozen=True, gc=False):
    """One reply's head, as the app sent it. `unrouted`: the app's routing found no handler for the request."""

    status: int
    headers: Sequence[Header]
    unrouted: bool = False
