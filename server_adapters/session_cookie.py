"""A signed session cookie, as Starlette's SessionMiddleware signs and reads it.

Its value is base64 of JSON, a timestamp and a signature, joined with dots. Every reply signs it anew, so a session's
key is the id inside and never the value. Checking a signature costs as much as the rest of the router: what was
checked is kept, by the raw bytes of the Cookie header, with the time from which and until which it is valid.
"""

from __future__ import annotations

import json
import logging
import math
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from itsdangerous import BadSignature, TimestampSigner

from server_adapters import cookies
from server_adapters.heads import Header
from server_adapters.sessions import BoundedCache, session_field

logger = logging.getLogger("gym_supervise.adapters")

DEFAULT_MAX_AGE = 14 * 24 * 3600
"""Starlette's default, in seconds."""


class CookieSettings(msgspec.Struct, frozen=True):
    """A session cookie's name, key and attributes, named as SessionMiddleware names them. `max_age` is seconds."""

    name: str
    secret: str
    max_age: int | None = DEFAULT_MAX_AGE
    path: str = "/"
    same_site: str = "lax"
    https_only: bool = False
    domain: str | None = None
    partitioned: bool = False

    @property
    def flags(self) -> str:
        """The attributes after path and age, as Starlette orders them."""
        parts = ["httponly", f"samesite={self.same_site}"]
        if self.https_only:
            parts.append("secure")
        if self.domain is not None:
            parts.append(f"domain={self.domain}")
        if self.partitioned:
            parts.append("partitioned")
        return "; ".join(parts)


class ReplyCookie(msgspec.Struct, frozen=True, gc=False):
    """What a reply does with the session cookie: the id that it names, or that it takes the client's name for it."""

    session: str | None
    expired: bool


class _Signer(TimestampSigner):
    """The signer that SessionMiddleware uses, with a clock of its own and its key derived once."""

    def __init__(self, secret: str, clock: Callable[[], float]) -> None:
        super().__init__(secret)
        self._clock = clock
        self._key = super().derive_key()

    def get_timestamp(self) -> int:
        return int(self._clock())

    def derive_key(self, secret_key: str | bytes | None = None) -> bytes:  # noqa: ARG002 (there is but one)
        return self._key


class SessionCookie:
    """Reads and writes one server's session cookie.

    Args:
        settings: name, secret and attributes.
        field: the key of the session id in the cookie's data.
        server: the server's name, for log lines.
        clock: wall seconds; signatures carry them.

    """

    def __init__(
        self, settings: CookieSettings, *, field: str, server: str = "", clock: Callable[[], float] = time.time
    ) -> None:
        self.settings = settings
        self.field = field
        self.name = settings.name
        self.prefix = f"{settings.name}=".encode("latin-1")
        self._server = server
        self._clock = clock
        self._signer = _Signer(settings.secret, clock)
        self._max_age = math.inf if settings.max_age is None else settings.max_age
        self._requests: BoundedCache[tuple[float, float, str | None]] = BoundedCache()
        self._replies: BoundedCache[ReplyCookie] = BoundedCache()
        self._expiry = cookies.Expiry()
        self._warned = False

    def session(self, raw: bytes) -> str | None:
        """The id that a Cookie header (several joined) names under a valid signature, or None."""
        entry = self._requests.get(raw)
        if entry is None:
            entry = self._decode(raw)
            self._requests.put(raw, entry)
        valid_from, valid_until, session = entry
        if session is None or not valid_from <= self._clock() < valid_until:
            return None
        return session

    def payload(self, raw: bytes | None) -> dict[str, Any] | None:
        """The data of a valid cookie, or None. Not cached: the data can be large."""
        decoded = self._unsign(raw)
        if decoded is None:
            return None
        payload, signed_at = decoded
        return payload if signed_at <= self._clock() < signed_at + self._max_age + 1 else None

    def put(self, headers: Sequence[Header], session: str) -> list[Header]:
        """The headers with a signed cookie that names `session`, as the app's own SessionMiddleware takes it.

        Valid data without an id is kept, and the id added. That of another session goes: it is not this one's.
        """
        payload = self.payload(cookies.joined(headers)) or {}
        if session_field(payload, self.field) not in (None, session):
            payload = {}
        return cookies.put(headers, self.name, self.sign({**payload, self.field: session}))

    def sign(self, payload: dict[str, Any]) -> str:
        """A cookie value for a session's data."""
        return self._signer.sign(b64encode(json.dumps(payload).encode())).decode()

    def read_reply(self, headers: Sequence[Header]) -> ReplyCookie | None:
        """What a reply does with the cookie; None when it leaves it alone.

        An id counts only under a valid signature. The data is the same in every reply of a session: it is checked once.
        """
        found = cookies.set_by(headers, self.prefix)
        if found is None:
            return None
        end = found.find(b";")
        value = found[len(self.prefix) :] if end < 0 else found[len(self.prefix) : end]
        if end >= 0 and self._expiry.passed(found[end + 1 :], self._clock()):
            return ReplyCookie(None, expired=True)
        data = value.partition(b".")[0]
        return self._replies.get(data) or self._check_reply(value, data)

    def repeated(self, raw: bytes | None) -> list[Header]:
        """A Set-Cookie header with the request's cookie as it came; none when that names no session."""
        if raw is None or self.session(raw) is None:
            return []
        settings, value = self.settings, cookies.value_as_sent(raw, self.name)
        age = "" if settings.max_age is None else f"Max-Age={settings.max_age}; "
        line = f"{self.name}={value}; path={settings.path}; {age}{settings.flags}"
        return [(b"set-cookie", line.encode("latin-1"))]

    def expired(self) -> list[Header]:
        """A Set-Cookie header that takes the cookie from the client, written as Starlette clears a session."""
        settings = self.settings
        line = f"{self.name}=null; path={settings.path}; {cookies.EXPIRED}; {settings.flags}"
        return [(b"set-cookie", line.encode("latin-1"))]

    def _decode(self, raw: bytes) -> tuple[float, float, str | None]:
        decoded = self._unsign(raw)
        if decoded is None:
            return (0.0, 0.0, None)
        payload, signed_at = decoded
        # The signer compares whole seconds, so the last of them is valid to its end.
        return (signed_at, signed_at + self._max_age + 1, session_field(payload, self.field))

    def _unsign(self, raw: bytes | None) -> tuple[dict[str, Any], int] | None:
        value = None if raw is None else cookies.parse(raw).get(self.name)
        return None if value is None else self._unsign_value(value)

    def _unsign_value(self, value: str) -> tuple[dict[str, Any], int] | None:
        """Data and time of a value with a valid signature, however old; None for anything else, which never raises."""
        try:
            data, signed_at = self._signer.unsign(value.encode(), return_timestamp=True)
            payload = json.loads(b64decode(data))
        except (BadSignature, ValueError, OverflowError, OSError, RecursionError):
            return None
        return (payload, int(signed_at.timestamp())) if isinstance(payload, dict) else None

    def _check_reply(self, value: bytes, data: bytes) -> ReplyCookie:
        if value in (b"", b'""', b"null"):
            return ReplyCookie(None, expired=True)
        decoded = self._unsign_value(value.decode("latin-1"))
        if decoded is None:
            self._warn()
            return ReplyCookie(None, expired=False)
        session = session_field(decoded[0], self.field)
        # Data without the id overwrites the client's: it cannot name its session any more.
        seen = ReplyCookie(session, expired=session is None)
        self._replies.put(data, seen)
        return seen

    def _warn(self) -> None:
        if self._warned:
            return
        self._warned = True
        logger.warning(
            "server %s: the app signs its session cookie %s with another secret than affinity.secret, so its sessions"
            " cannot be followed; give affinity.secret the value of SessionMiddleware's secret_key",
            self._server,
            self.name,
        )
