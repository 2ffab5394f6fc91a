"""Preset starlette-session: any Starlette or FastAPI app with SessionMiddleware that keeps an id in the session.

The app makes the ids, in whatever request it likes; the router sees a new one in the reply's cookie. Starts and ends
are what the config says, if anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from server_adapters import cookies
from server_adapters.adapter import Life, OwnReply, Plain, Reading, ReplyKind, ReplyReading, json_reply
from server_adapters.heads import Header, RequestHead, ResponseHead
from server_adapters.routes import Role, Routes
from server_adapters.session_cookie import SessionCookie

NO_SESSION = Reading()
START = Reading(starts=True)
STATELESS = Reading(stateless=True)


class StarletteSession(Plain):
    """A server whose session id is a field of its session cookie.

    Args:
        cookie: the session cookie.
        routes: starts, ends and stateless routes.
        life: the life of a claim.

    """

    name = "starlette-session"

    def __init__(self, cookie: SessionCookie, routes: Routes, *, life: Life) -> None:
        self._cookie = cookie
        self._routes = routes
        self.life = life

    def read(self, head: RequestHead) -> Reading:
        """Find the session in a request's head."""
        raw = cookies.joined(head.headers)
        session = None if raw is None else self._cookie.session(raw)
        roles = self._routes.find("WEBSOCKET" if head.websocket else head.method, head.path)
        if not roles:
            return NO_SESSION if session is None else Reading(session, True)
        if roles & Role.STATELESS:
            return STATELESS if session is None else Reading(session, stateless=True)
        starts, ends = bool(roles & Role.STARTS), bool(roles & Role.ENDS)
        return Reading(session, vouched=session is not None, starts=starts, ends=ends)

    def mint(self, head: RequestHead, session: str) -> Sequence[Header]:
        """Ids are the app's to make; this puts one into its session all the same."""
        return self._cookie.put(head.headers, session)

    def reply(self, _head: RequestHead, reading: Reading, session: str | None, reply: ResponseHead) -> ReplyReading:
        """What the reply's session cookie says; taken out where a stateless route would name a session."""
        found = self._cookie.read_reply(reply.headers)
        if found is None:
            return LEFT_ALONE
        if session is None and reading.stateless and found.session is not None:
            return ReplyReading(headers=cookies.without(reply.headers, self._cookie.prefix))
        return ReplyReading(found.session, found.expired)

    def own_reply(self, kind: ReplyKind, _head: RequestHead, _reading: Reading, facts: Mapping[str, Any]) -> OwnReply:
        """JSON; a lost session's cookie is expired, so that a browser is not locked out."""
        return json_reply(kind, facts, headers=self._cookie.expired() if kind == "session_gone" else ())


LEFT_ALONE = ReplyReading()
