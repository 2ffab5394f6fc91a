"""A reply's headers as the lines that uvicorn would write, where they are plain enough to need nothing else of it."""

from __future__ import annotations

import re
from collections.abc import Iterable

# What uvicorn refuses: in a name, and in a value.
_BAD_NAME = re.compile(rb'[\x00-\x1f\x7f()<>@,;:\[\]={} \t\\"]')
_bad_value = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]").search
# Names that change how a reply is written.
_FRAMING = frozenset({b"connection", b"transfer-encoding"})
LENGTH = b"content-length: "

# name -> "name: " as it is written; apps use few names.
_known: dict[bytes, bytes] = {}
MOST_KNOWN = 1024


def lines_of(headers: Iterable[tuple[bytes, bytes]], size: int | None) -> bytes | None:
    """The lines of `headers`, each with its end; None where they are for the server to judge.

    `size` is that of the body: the headers must announce it once. None: they must not announce any.
    """
    length: bytes | None = None
    written: list[bytes] = []
    try:
        for name, value in headers:
            start = _known.get(name) or _start_of(name)
            if not start:
                return None
            if start == LENGTH:
                if length is not None:
                    return None
                length = value
            written += (start, value, b"\r\n")
        if _bad_value(b"".join(written[1::3])):
            return None
        if size is None:
            return None if length is not None else b"".join(written)
        return b"".join(written) if length is not None and int(length) == size else None
    except (TypeError, ValueError):  # not bytes, or no number
        return None


def _start_of(name: bytes) -> bytes:
    lower = name.lower()
    if not isinstance(name, bytes) or lower in _FRAMING or _BAD_NAME.search(name):
        return b""
    if len(_known) >= MOST_KNOWN:
        _known.clear()
    _known[name] = start = lower + b": "
    return start
