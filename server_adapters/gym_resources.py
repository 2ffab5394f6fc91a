"""Preset gym-resources: NeMo Gym's resources servers, those without typed routes and those with.

    source of the id                                       where
    session cookie, field session_id                       every route
    MCP token                                              /mcp and below; elsewhere when the cookie names no session
    body, field resources_session_id                       POST /seed_session, /close_session

Every route counts bare and under /ng-rollout/ID.
"""

from __future__ import annotations

from server_adapters import cookies
from server_adapters.adapter import Life, Reading
from server_adapters.gym import NO_SESSION, ROLLOUT, SAFE, STATELESS, GymServer, below_rollout
from server_adapters.heads import RequestHead, ResponseHead
from server_adapters.routes import Role, Route, Routes
from server_adapters.session_cookie import SessionCookie
from server_adapters.sessions import JsonFields, decompress
from server_adapters.tokens import TOKEN_HEADER, SessionTokens

FIELD = "session_id"
TYPED_FIELD = "resources_session_id"

ROUTES = {
    "/seed_session": Role.STARTS | Role.BODY,
    "/close_session": Role.ENDS | Role.BODY,
    "/reset": Role.STARTS,
    "/step": Role.REPLY_BODY,
    "/verify": Role.ENDS | Role.MAY_STAY,
    "/close": Role.ENDS,
}


def resources_routes() -> Routes:
    """The routes of every resources server; all are POST."""
    routes = Routes()
    for path, role in ROUTES.items():
        routes.add(Route(frozenset({"POST"}), path, None), role)
    return routes


class GymResources(GymServer):
    """A resources server.

    Args:
        cookie: the session cookie; its secret signs the tokens too.
        routes: `resources_routes()` and what the config adds.
        life: the life of a claim.

    """

    name = "gym-resources"

    def __init__(self, cookie: SessionCookie, routes: Routes, *, life: Life) -> None:
        super().__init__(cookie, routes, typed_field=TYPED_FIELD, mints=True, life=life)
        self._tokens = SessionTokens(cookie.settings.secret)
        self._step = JsonFields("terminated", "truncated")

    def read(self, head: RequestHead) -> Reading:
        """Find the session in a request's head."""
        path = head.path
        if path.startswith(ROLLOUT):
            path = below_rollout(path)
        raw = token = None
        for key, value in head.headers:
            if key == b"cookie":
                raw = value if raw is None else cookies.joined(head.headers)
            elif key == TOKEN_HEADER and token is None:  # the first of a name is what the app reads
                token = value
        session = None if raw is None else self._cookie.session(raw)
        if path.startswith("/mcp") and (len(path) == 4 or path[4] == "/"):
            return self._read_mcp(session, token)
        put = False
        if session is None and token is not None:
            session = self._tokens.session(token)
            put = session is not None
        method = "WEBSOCKET" if head.websocket else head.method
        roles = self._routes.find(method, path)
        if roles:
            return self.by_role(head, roles, session, put=put)
        if session is not None:
            return Reading(session, True, mints=put)
        return NO_SESSION if method in SAFE or head.websocket else self._new

    def _read_mcp(self, from_cookie: str | None, token: bytes | None) -> Reading:
        """MCP's clients name their session in the token; a cookie beside it may be a stray one.

        The app must see the token's session in its cookie too, so that its reply names no other. Without a token
        nothing is kept: a cookie's id leads to its owner, if it has one, and claims nothing.
        """
        session = None if token is None else self._tokens.session(token)
        if session is not None:
            return Reading(session, True, mints=from_cookie != session)
        return STATELESS if from_cookie is None else Reading(from_cookie, stateless=True)

    def read_reply_body(self, _head: RequestHead, _reading: Reading, reply: ResponseHead, body: bytes) -> bool:
        """A Gymnasium episode is over when its step's reply is JSON with `terminated` or `truncated` true."""
        encoding = None
        for key, value in reply.headers:
            if key == b"content-encoding":
                encoding = value
        fields = self._step.read(decompress(body, encoding))
        return fields is not None and any(value is True for value in fields)
