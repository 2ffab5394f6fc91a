"""What counts as a session id, and a bounded cache for what ids are decoded from."""

from __future__ import annotations

import json
import zlib
from typing import Any, Generic, TypeVar

import msgspec

MAX_SESSION_BYTES = 2048
"""An id that is longer cannot travel in a cookie: browsers and aiohttp cap a whole cookie at 4 KiB."""

_V = TypeVar("_V")


def session_id(value: object) -> str | None:
    """`value` as a session id, or None when it is none: a non-empty text of at most 2048 bytes of UTF-8."""
    if not isinstance(value, str) or not value:
        return None
    try:
        size = len(value.encode())
    except UnicodeEncodeError:  # a lone surrogate, which JSON can escape but no digest or log can take
        return None
    return value if size <= MAX_SESSION_BYTES else None


def session_field(payload: dict[str, Any], field: str) -> str | None:
    """The id in a session's data. A number counts too: apps keep a user's primary key there."""
    value = payload.get(field)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return session_id(value)


class JsonFields:
    """Reads fields at the top of a JSON object and builds nothing of the rest, so that its size does not matter."""

    def __init__(self, *fields: str) -> None:
        self._fields = fields
        names = {f"f{index}": field for index, field in enumerate(fields)}
        struct = msgspec.defstruct("Fields", [(name, Any, None) for name in names], rename=names)
        self._decode = msgspec.json.Decoder(struct).decode

    def read(self, body: bytes) -> tuple[Any, ...] | None:
        """The fields' values, None for each that is missing; None as a whole when the body is no JSON object."""
        try:
            return msgspec.structs.astuple(self._decode(body))
        except msgspec.ValidationError:
            return None
        except (msgspec.DecodeError, RecursionError):
            pass
        # Apps read with json.loads, which takes NaN, lone surrogates, a byte order mark and UTF-16 as well. Only such
        # a body, and one that is broken, costs its size again.
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            return None
        return tuple(content.get(field) for field in self._fields) if isinstance(content, dict) else None


def decompress(body: bytes, encoding: bytes | None) -> bytes:
    """A body without its content-encoding; as it is where the encoding is not one of gzip and deflate, or broken."""
    if encoding is None or encoding.strip().lower() not in (b"gzip", b"x-gzip", b"deflate"):
        return body
    try:
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32).decompress(body)
    except zlib.error:
        return body


class BoundedCache(Generic[_V]):
    """A dict that forgets what was not asked for lately.

    Two generations: when the young one is full it becomes the old one, and the old one goes; a hit among the old moves
    to the young. Cheaper than moving an entry at every hit, and a flood of new keys costs its own decoding only.

    Args:
        entries: the most entries of one generation.
        size: the most bytes of keys of one generation; a key of more than a hundredth of it is not kept.

    """

    def __init__(self, *, entries: int = 4096, size: int = 1 << 20) -> None:
        self._entries = entries
        self._size = size
        self._used = 0
        self._young: dict[bytes, _V] = {}
        self._old: dict[bytes, _V] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: bytes) -> _V | None:
        """What was put under `key`, or None."""
        found = self._young.get(key)
        if found is None and (found := self._old.pop(key, None)) is not None:
            self.put(key, found)
        return found

    def put(self, key: bytes, value: _V) -> None:
        """Keep `value`, which is not None, for a while."""
        if len(key) * 100 > self._size:
            return
        if len(self._young) >= self._entries or self._used + len(key) > self._size:
            self._old, self._young, self._used = self._young, {}, 0
        self._young[key] = value
        self._used += len(key)
