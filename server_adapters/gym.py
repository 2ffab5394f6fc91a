"""What Gym's resources and agent servers have in common: the cookie, ids in bodies, rollout prefixes, replies.

The two presets differ in their routes, in what else names a session, and in the life of a claim.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from server_adapters import cookies
from server_adapters.adapter import Life, OwnReply, Plain, Reading, ReplyKind, ReplyReading, json_reply
from server_adapters.heads import Header, RequestHead, ResponseHead
from server_adapters.routes import Role, Routes
from server_adapters.session_cookie import SessionCookie
from server_adapters.sessions import JsonFields, session_id

ROLLOUT = "/ng-rollout/"
_ROLLOUT_ID = re.compile(r"/ng-rollout/[A-Za-z0-9][A-Za-z0-9._-]*")

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that make no session: what they leave is no claim and no cookie."""

CLOSE_FOLLOWS = b"x-ng-checkpoint-close-follows"

UNROUTED = frozenset({405, 307})
"""Replies of the app's routing, which reach no handler: a new session they cannot have made."""

NO_SESSION = Reading()
NEW_SESSION = Reading(mints=True)
STATELESS = Reading(stateless=True)


def below_rollout(path: str) -> str:
    """The path without its rollout prefix, where it has one. What is left is a route only if it starts with a slash."""
    found = _ROLLOUT_ID.match(path)
    return path if found is None else path[found.end() :] or "/"


class GymServer(Plain):
    """What is the same in both presets; `GymResources` and `GymAgent` add how a request's head is read.

    Args:
        cookie: the session cookie.
        routes: what the routes mean, without prefixes.
        typed_field: the field of a body that names the session.
        mints: whether a request without an id gets one from the router.
        life: the life of a claim.

    """

    def __init__(self, cookie: SessionCookie, routes: Routes, *, typed_field: str, mints: bool, life: Life) -> None:
        self._cookie = cookie
        self._routes = routes
        self._typed = JsonFields(typed_field)
        self._new = NEW_SESSION if mints else NO_SESSION
        self._cookie_source = f"cookie {cookie.name}"
        self._typed_source = f"body {typed_field}"
        self.life = life

    def by_role(self, head: RequestHead, roles: int, session: str | None, *, put: bool) -> Reading:
        """The reading of a request whose route means `roles`, under an id from its head or none.

        `put` says that the id has to be put into the app's cookie.
        """
        if roles & Role.STATELESS:
            return STATELESS if session is None else Reading(session, stateless=True, mints=put)
        ends = bool(roles & Role.ENDS)
        stays_open = ends and bool(roles & Role.MAY_STAY) and head.get(CLOSE_FOLLOWS) is not None
        return Reading(
            session,
            vouched=session is not None,
            starts=bool(roles & Role.STARTS),
            ends=ends and not stays_open,
            stays_open=stays_open,
            mints=self._new.mints if session is None else put,
            needs_body=bool(roles & Role.BODY),
            wants_reply_body=bool(roles & Role.REPLY_BODY),
        )

    def read_body(self, head: RequestHead, reading: Reading, body: bytes) -> Reading:
        """A typed seed or close is one with an id in its body; where its head names another session, it is refused."""
        fields = self._typed.read(body)
        typed = None if fields is None else session_id(fields[0])
        if typed is None:
            return msgspec.structs.replace(reading, needs_body=False)
        raw = cookies.joined(head.headers)
        from_cookie = None if raw is None else self._cookie.session(raw)
        conflict: tuple[str, ...] = ()
        if reading.session not in (None, typed):
            source = self._cookie_source if from_cookie == reading.session else "token"
            conflict = (source, self._typed_source)
        return msgspec.structs.replace(
            reading,
            session=typed,
            vouched=True,
            typed=True,
            mints=from_cookie != typed,
            needs_body=False,
            conflict=conflict,
        )

    def mint(self, head: RequestHead, session: str) -> Sequence[Header]:
        """The request's headers with a session cookie that names `session`."""
        return self._cookie.put(head.headers, session)

    def reply(self, head: RequestHead, reading: Reading, session: str | None, reply: ResponseHead) -> ReplyReading:
        """What the reply's session cookie says; taken out where it would name a session that nobody holds.

        Where the router makes no ids the app may make one in a POST: it is claimed as its reply goes out.
        """
        found = self._cookie.read_reply(reply.headers)
        nothing = reading.session is None and (reply.status in UNROUTED or reply.unrouted)
        if found is None:
            return NOTHING if nothing else LEFT_ALONE
        unheld = session is None and (self._new.mints or reading.stateless or head.method in SAFE)
        if (unheld or nothing) and found.session is not None:
            return ReplyReading(headers=cookies.without(reply.headers, self._cookie.prefix), nothing=nothing)
        return ReplyReading(found.session, found.expired, nothing=nothing)

    def own_reply(self, kind: ReplyKind, head: RequestHead, _reading: Reading, facts: Mapping[str, Any]) -> OwnReply:
        """JSON, with the session's cookie as it came: Gym's clients send the last reply's cookies and no others."""
        return json_reply(kind, facts, headers=self._cookie.repeated(cookies.joined(head.headers)))


LEFT_ALONE = ReplyReading()
NOTHING = ReplyReading(nothing=True)
