"""Cookies in raw header lists: read as Starlette reads them, put in, taken out, expired.

A header list is what ASGI has: pairs of bytes in the order of the wire, and the order is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import cookies as http_cookies

from server_adapters.heads import Header
from server_adapters.sessions import BoundedCache

EXPIRED = "expires=Thu, 01 Jan 1970 00:00:00 GMT"


def joined(headers: Sequence[Header]) -> bytes | None:
    """All Cookie headers as one, or None when there are none. HTTP/2 clients split what HTTP/1.1 clients join."""
    raw = None
    for key, value in headers:
        if key == b"cookie":
            raw = value if raw is None else raw + b"; " + value
    return raw


def parse(raw: bytes) -> dict[str, str]:
    """The cookies of a Cookie header, as Starlette's `cookie_parser` has them: unquoted, the last of a name wins."""
    found: dict[str, str] = {}
    for chunk in raw.decode("latin-1").split(";"):
        key, value = _split(chunk)
        if key or value:
            # The very function that Starlette calls: what it makes of quotes differs between Python versions.
            found[key] = http_cookies._unquote(value)
    return found


def value_as_sent(raw: bytes, name: str) -> str | None:
    """One cookie's value with its quotes, as the client wrote it; None when it has no such cookie."""
    found = None
    for chunk in raw.decode("latin-1").split(";"):
        key, value = _split(chunk)
        if key == name and (key or value):
            found = value
    return found


def _split(chunk: str) -> tuple[str, str]:
    key, equals, value = chunk.partition("=")
    # Without a sign the whole is the value of a nameless cookie, as in browsers.
    return (key.strip(), value.strip()) if equals else ("", chunk.strip())


def put(headers: Sequence[Header], name: str, value: str) -> list[Header]:
    """The headers with one more cookie, in place of every other of its name."""
    last = -1
    for index, (key, _) in enumerate(headers):
        if key == b"cookie":
            last = index
    changed: list[Header] = []
    for index, (key, old) in enumerate(headers):
        if key != b"cookie":
            changed.append((key, old))
            continue
        kept = [chunk for chunk in old.decode("latin-1").split(";") if _split(chunk)[0] != name and chunk.strip()]
        if index == last:
            kept.append(f" {name}={value}")
        if kept:
            changed.append((key, ";".join(kept).strip().encode("latin-1")))
    if last < 0:
        changed.append((b"cookie", f"{name}={value}".encode("latin-1")))
    return changed


def set_by(headers: Sequence[Header], prefix: bytes) -> bytes | None:
    """The value of the last Set-Cookie header that starts with `prefix` (`NAME=`): the one a client keeps."""
    found = None
    for key, value in headers:
        if key == b"set-cookie" and value.startswith(prefix):
            found = value
    return found


def without(headers: Sequence[Header], prefix: bytes) -> list[Header]:
    """The headers without the Set-Cookie headers that start with `prefix` (`NAME=`)."""
    return [(key, value) for key, value in headers if key != b"set-cookie" or not value.startswith(prefix)]


class Expiry:
    """When cookies that an app sets expire. Apps write the same attributes again and again: they are cached."""

    def __init__(self) -> None:
        self._known: BoundedCache[float] = BoundedCache(entries=64)

    def passed(self, attributes: bytes, now: float) -> bool:
        """Whether a cookie with these attributes (all that follows its value) is expired at `now`, in wall seconds."""
        at = self._known.get(attributes)
        if at is None:
            at = expires_at(attributes)
            self._known.put(attributes, at)
        return at <= now


def expires_at(attributes: bytes) -> float:
    """When a cookie with these attributes expires, in wall seconds; infinite when it is not a matter of its past.

    Max-Age goes before Expires (RFC 6265, 5.3), the last of each counts, and one that cannot be read is not there.
    """
    max_age = expires = None
    for attribute in attributes.decode("latin-1").split(";"):
        name, value = _split(attribute)
        match name.lower():
            case "max-age":
                if value.removeprefix("-").isdecimal():
                    max_age = -math.inf if value.startswith("-") or not value.strip("0") else math.inf
            case "expires":
                try:
                    when = parsedate_to_datetime(value)
                except (ValueError, TypeError, OverflowError):
                    continue
                # RFC 6265 reads every date as UTC, also one that names no zone.
                expires = (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()
    if max_age is not None:
        return max_age
    return math.inf if expires is None else expires
