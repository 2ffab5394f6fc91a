"""Where preset custom finds ids: in requests and in replies.

A source yields every id that it sees, so that one header or query parameter given twice can disagree with itself; of
one cookie name the last counts, as servers read it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol
from urllib.parse import parse_qsl

from server_adapters import cookies
from server_adapters.heads import Header, RequestHead
from server_adapters.json_paths import JsonPaths, Path
from server_adapters.routes import Routes
from server_adapters.session_cookie import ReplyCookie, SessionCookie
from server_adapters.sessions import BoundedCache, session_id

_ROUTER_MADE = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Source:
    """A place in a request where an id may be."""

    label: str

    def find(self, _head: RequestHead, _raw: bytes | None) -> Iterator[str]:
        """The ids in a head, whose Cookie headers are `raw`."""
        yield from ()

    def find_in_body(self, head: RequestHead, raw: bytes | None, _body: bytes) -> Iterator[str]:
        """The ids in a whole request; but for sources in bodies they are those of its head."""
        return self.find(head, raw)

    def vouches(self, _session: str) -> bool:
        """Whether an id found here counts though nobody claims it: it is known to be genuine."""
        return False


class Cookie(Protocol):
    """A cookie, plain or signed."""

    name: str
    prefix: bytes

    def session(self, raw: bytes) -> str | None:
        """The id that a Cookie header names."""

    def read_reply(self, headers: Sequence[Header]) -> ReplyCookie | None:
        """What a reply does with the cookie."""

    def expired(self) -> list[Header]:
        """A Set-Cookie header that takes the cookie from the client."""


class PlainCookie:
    """A cookie whose value is the id."""

    def __init__(self, name: str, *, clock: Callable[[], float] = time.time) -> None:
        self.name = name
        self.prefix = f"{name}=".encode("latin-1")
        self._clock = clock
        self._known: BoundedCache[tuple[str | None]] = BoundedCache()
        self._expiry = cookies.Expiry()

    def session(self, raw: bytes) -> str | None:
        """The id that a Cookie header names."""
        known = self._known.get(raw)
        if known is None:
            known = (session_id(cookies.parse(raw).get(self.name)),)
            self._known.put(raw, known)
        return known[0]

    def read_reply(self, headers: Sequence[Header]) -> ReplyCookie | None:
        """What a reply does with the cookie; an empty value takes it away."""
        found = cookies.set_by(headers, self.prefix)
        if found is None:
            return None
        value, _, attributes = found[len(self.prefix) :].partition(b";")
        if self._expiry.passed(attributes, self._clock()):
            return ReplyCookie(None, expired=True)
        # The client sends the value back as it got it: what it will be read as is what counts.
        session = session_id(cookies.parse(self.prefix + value).get(self.name))
        return ReplyCookie(session, expired=session is None)

    def issue(self, session: str) -> Header:
        """A Set-Cookie header that gives the client an id for as long as its browser runs."""
        return (b"set-cookie", f"{self.name}={session}; path=/; httponly; samesite=lax".encode("latin-1"))

    def expired(self) -> list[Header]:
        """A Set-Cookie header that takes the cookie from the client."""
        return [
            (b"set-cookie", f"{self.name}=null; path=/; {cookies.EXPIRED}; httponly; samesite=lax".encode("latin-1"))
        ]


class CookieSource(Source):
    """An id in a cookie. A signature vouches for it, and so does the form of an id that the router issues itself."""

    def __init__(self, cookie: Cookie, *, issued: bool = False) -> None:
        self.cookie = cookie
        self.label = f"cookie {cookie.name}"
        self._signed = isinstance(cookie, SessionCookie)
        self._issued = issued

    def find(self, _head: RequestHead, raw: bytes | None) -> Iterator[str]:
        """The id in the cookie."""
        if raw is not None and (session := self.cookie.session(raw)) is not None:
            yield session

    def vouches(self, session: str) -> bool:
        """A signature was checked, or the router issues this cookie and the id looks like one of its own."""
        return self._signed or (self._issued and _ROUTER_MADE.fullmatch(session) is not None)


class HeaderSource(Source):
    """An id in a header."""

    def __init__(self, name: str) -> None:
        self.label = f"header {name}"
        self._name = name.lower().encode("ascii")

    def find(self, head: RequestHead, _raw: bytes | None) -> Iterator[str]:
        """The id in every header of the name."""
        for key, value in head.headers:
            if key == self._name and (session := session_id(value.decode("latin-1").strip())) is not None:
                yield session


class QuerySource(Source):
    """An id in the query."""

    def __init__(self, name: str) -> None:
        self.label = f"query {name}"
        self._name = name

    def find(self, head: RequestHead, _raw: bytes | None) -> Iterator[str]:
        """The id in every parameter of the name."""
        if not head.query:
            return
        for name, value in parse_qsl(head.query.decode("latin-1")):
            if name == self._name and (session := session_id(value)) is not None:
                yield session


class SubprotocolSource(Source):
    """An id among the subprotocols that a WebSocket offers: the `nth` of them, counted from 1."""

    def __init__(self, nth: int) -> None:
        self.label = f"subprotocol {nth}"
        self._nth = nth

    def find(self, head: RequestHead, _raw: bytes | None) -> Iterator[str]:
        """The id at its place; of several headers all entries are counted, in order."""
        if not head.websocket:
            return
        offered = b",".join(head.get_all(b"sec-websocket-protocol")).split(b",")
        if len(offered) >= self._nth:
            session = session_id(offered[self._nth - 1].decode("latin-1").strip())
            if session is not None:
                yield session


class PathSource(Source):
    """An id in the path: the group `session` of a pattern that matches from the path's start."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.label = "path"
        self._pattern = pattern

    def find(self, head: RequestHead, _raw: bytes | None) -> Iterator[str]:
        """The id in the path."""
        match = self._pattern.match(head.path)
        if match is not None and (session := session_id(match["session"])) is not None:
            yield session


class JsonSource(Source):
    """An id in a JSON body by its path, on the routes where it is looked for."""

    def __init__(self, path: Path, routes: Routes) -> None:
        self.label = f"body {'.'.join(path)}"
        self.routes = routes
        self._paths = JsonPaths(path)

    def find_in_body(self, head: RequestHead, _raw: bytes | None, body: bytes) -> Iterator[str]:
        """The id in the body."""
        if not self.routes.find(head.method, head.path):
            return
        if (session := session_id(self._paths.read(body)[0])) is not None:
            yield session


class ReplyHeader:
    """An id in a header of a reply."""

    def __init__(self, name: str) -> None:
        self._name = name.lower().encode("ascii")

    def read_reply(self, headers: Sequence[Header]) -> ReplyCookie | None:
        """The id in the last header of the name."""
        found = None
        for key, value in headers:
            if key == self._name:
                found = value
        session = None if found is None else session_id(found.decode("latin-1").strip())
        return None if session is None else ReplyCookie(session, expired=False)
