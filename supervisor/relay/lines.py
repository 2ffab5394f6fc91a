"""A reply's headers as the lines that uvicorn would write, where they are plain enough to need nothing else of it."""

from __future__ import annotations

import re
from collections.abc import Iterable

# What uvicorn refuses: in a name, and in a value.
_BAD_NAME = re.compile(rb'[\x00-\x1f\x7f()<>@,;:\[\]={} \t\\"]')
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]").search
# Names that change how a reply is written.
_FRAMING = frozenset({b"connection", b"transfer-encoding"})
_LENGTH = b"content-length"

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
            start = _known.get(name)
            if start is None:
                start = _start_of(name)
                if start is None:
                    return None
            if start == b"content-length: ":
                if length is not None:
                    return None
                length = value
            written += (start, value, b"\r\n")
        lines = b"".join(written)
        if size is None:
            if length is not None:
                return None
        elif length is None or int(length) != size:
            return None
    except (TypeError, ValueError):  # not bytes, or no number
        return None
    # Each header has one line, and none has a character that is no part of one.
    count = len(written) // 3
    if lines.count(b"\n") != count or lines.count(b"\r") != count or _BAD_VALUE(lines.replace(b"\r\n", b"")):
        return None
    return lines


def _start_of(name: bytes) -> bytes | None:
    lower = name.lower()
    if not isinstance(name, bytes) or lower in _FRAMING or _BAD_NAME.search(name):
        return None
    if len(_known) >= MOST_KNOWN:
        _known.clear()
    _known[name] = start = lower + b": "
    return start
