"""Preset custom: ids where the config says, in requests and in replies.

A session is named by the first source that has an id; another that has a different one is a conflict. An id that
nobody claims is claimed when a signature vouches for it, or when the config says so (`unknown: claim`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from server_adapters import cookies
from server_adapters.adapter import STATUS_OF, Life, OwnReply, Plain, Reading, ReplyKind, ReplyReading, json_reply
from server_adapters.custom_bodies import GivenOut
from server_adapters.custom_sources import Cookie, CookieSource, JsonSource, PlainCookie, ReplyHeader, Source
from server_adapters.finders import Finder
from server_adapters.heads import Header, RequestHead, ResponseHead
from server_adapters.routes import Role, Routes


class Gone(msgspec.Struct, frozen=True):
    """The gone reply: its status, and its body where it is not the usual one (text, or anything as JSON)."""

    status: int = STATUS_OF["session_gone"]
    body: Any = None


class Custom(Plain):
    """A server whose ids are found as the config says.

    Args:
        sources: where a request's id may be, in order.
        reply_headers: where a reply gives out ids, beside the cookies among the sources.
        bodies, frames: ids that are given out in replies' bodies and in WebSockets' first frames.
        issues: the cookie in which the router gives every new client an id of its own.
        routes: starts, ends and stateless routes.
        claims_unknown: ids that nobody claims are those of new sessions.
        gone: the gone reply.
        life: the life of a claim.

    """

    name = "custom"

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        reply_headers: Sequence[ReplyHeader],
        bodies: Sequence[GivenOut] = (),
        frames: Sequence[GivenOut] = (),
        issues: PlainCookie | None,
        routes: Routes,
        claims_unknown: bool,
        gone: Gone,
        life: Life,
    ) -> None:
        self._sources = sources
        self._bodies = [source for source in sources if isinstance(source, JsonSource)]
        self._cookies = [source.cookie for source in sources if isinstance(source, CookieSource)]
        self._replies: list[ReplyHeader | Cookie] = [*reply_headers, *self._cookies]
        self._bodies_given_out = bodies
        self._frames_given_out = frames
        self._issues = issues
        self._routes = routes
        self._claims_unknown = claims_unknown
        self._gone = gone
        self.life = life

    def read(self, head: RequestHead) -> Reading:
        """Find the session in a request's head."""
        method = "WEBSOCKET" if head.websocket else head.method
        roles = self._routes.find(method, head.path)
        reading = self._find(head, roles, None)
        if any(source.routes.find(method, head.path) for source in self._bodies):
            return msgspec.structs.replace(reading, needs_body=True)
        return reading

    def read_body(self, head: RequestHead, _reading: Reading, body: bytes) -> Reading:
        """Find the session in head and body."""
        method = "WEBSOCKET" if head.websocket else head.method
        return self._find(head, self._routes.find(method, head.path), body)

    def _find(self, head: RequestHead, roles: int, body: bytes | None) -> Reading:
        raw = cookies.joined(head.headers)
        session = None
        named_by = ""
        vouched = False
        conflict: tuple[str, ...] = ()
        for source in self._sources:
            for found in source.find(head, raw) if body is None else source.find_in_body(head, raw, body):
                if session is None:
                    session, named_by = found, source.label
                elif found != session:
                    conflict = (named_by, source.label)
                vouched = vouched or source.vouches(found)
        starts, stateless = bool(roles & Role.STARTS), bool(roles & Role.STATELESS)
        return Reading(
            session,
            vouched=session is not None and not stateless and (vouched or self._claims_unknown),
            starts=starts,
            ends=bool(roles & Role.ENDS),
            lasts=bool(roles & Role.LASTS),
            replaces_gone=session is not None and starts and self._claims_unknown,
            mints=session is None and self._issues_to(head) and not stateless,
            stateless=stateless,
            conflict=conflict,
        )

    def _issues_to(self, head: RequestHead) -> bool:
        # Preflights never carry a cookie.
        return self._issues is not None and head.method != "OPTIONS"

    def mint(self, head: RequestHead, session: str) -> Sequence[Header]:
        """The request's headers with the router's own cookie."""
        return head.headers if self._issues is None else cookies.put(head.headers, self._issues.name, session)

    def reply(self, head: RequestHead, reading: Reading, session: str | None, reply: ResponseHead) -> ReplyReading:
        """Which id the reply gives out; a minted one is put into it unless it is an error, which leaves no session."""
        issued, expired = None, False
        for place in self._replies:
            found = place.read_reply(reply.headers)
            if found is not None:
                issued = issued or found.session
                expired = expired or found.expired
        if issued is not None:
            if reading.stateless and session is None:
                return ReplyReading(headers=self._without_cookies(reply.headers))
            return ReplyReading(issued)
        if self._issues is not None and reading.mints and session is not None and reply.status < 400:
            return ReplyReading(session, headers=[*reply.headers, self._issues.issue(session)])
        finder = None
        if self._bodies_given_out and reply.status < 400 and not head.websocket:
            finder = _first(self._bodies_given_out, head)
        return ReplyReading(expired=expired, finder=finder)

    def frames(self, head: RequestHead, _reading: Reading) -> Finder | None:
        """What the config says of a WebSocket's first frames."""
        return _first(self._frames_given_out, head)

    def _without_cookies(self, headers: Sequence[Header]) -> Sequence[Header]:
        for cookie in self._cookies:
            headers = cookies.without(headers, cookie.prefix)
        return headers

    def own_reply(self, kind: ReplyKind, head: RequestHead, _reading: Reading, facts: Mapping[str, Any]) -> OwnReply:
        """JSON; the gone reply as configured, with the cookies that named the session expired."""
        if kind != "session_gone":
            return json_reply(kind, facts)
        raw = cookies.joined(head.headers)
        expired: list[Header] = []
        for cookie in self._cookies:
            if raw is not None and cookie.session(raw) is not None:
                expired += cookie.expired()
        if self._gone.body is None:
            return json_reply(kind, facts, status=self._gone.status, headers=expired)
        is_text = isinstance(self._gone.body, str)
        body = (self._gone.body if is_text else json.dumps(self._gone.body)).encode()
        headers: list[Header] = [
            (b"content-type", b"text/plain; charset=utf-8" if is_text else b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        return OwnReply(self._gone.status, (*headers, *expired), body)


def _first(places: Sequence[GivenOut], head: RequestHead) -> Finder | None:
    return next((finder for place in places if (finder := place.finder(head)) is not None), None)
