"""Preset gym-agent: NeMo Gym's agent servers.

    source of the id                       where
    session cookie, field agent_session_id every route
    body, field agent_session_id           POST /v1/agent_sessions, /v1/agent_sessions/close

Every route counts bare, under /ng-rollout/ID, and below /training-token-capture. Only a seed gives a session: other
requests without an id run where they land, unless `field` is `session_id`, which Gym's own middleware gives to all.
"""

from __future__ import annotations

from server_adapters import cookies
from server_adapters.adapter import Life, Reading
from server_adapters.gym import NO_SESSION, ROLLOUT, SAFE, GymServer, below_rollout
from server_adapters.heads import RequestHead
from server_adapters.routes import Role, Route, Routes
from server_adapters.session_cookie import SessionCookie

FIELD = "agent_session_id"
MIDDLEWARE_FIELD = "session_id"

CAPTURE = "/training-token-capture"

ROUTES = {
    "/v1/agent_sessions": Role.STARTS | Role.BODY,
    "/v1/agent_sessions/close": Role.ENDS | Role.BODY,
}


def agent_routes() -> Routes:
    """The routes of every agent server; all are POST."""
    routes = Routes()
    for path, role in ROUTES.items():
        routes.add(Route(frozenset({"POST"}), path, None), role)
    return routes


def below_prefixes(path: str) -> str:
    """The path without its prefixes, in whichever order they stand."""
    if path.startswith(ROLLOUT):
        path = below_rollout(path)
    if path.startswith(CAPTURE):
        path = path[len(CAPTURE) :]
        if path.startswith(ROLLOUT):
            path = below_rollout(path)
    return path


class GymAgent(GymServer):
    """An agent server.

    Args:
        cookie: the session cookie.
        routes: `agent_routes()` and what the config adds.
        life: the life of a claim.

    """

    name = "gym-agent"

    def __init__(self, cookie: SessionCookie, routes: Routes, *, life: Life) -> None:
        super().__init__(cookie, routes, typed_field=FIELD, mints=cookie.field == MIDDLEWARE_FIELD, life=life)

    def read(self, head: RequestHead) -> Reading:
        """Find the session in a request's head."""
        path = head.path
        if path.startswith((ROLLOUT, CAPTURE)):
            path = below_prefixes(path)
        raw = cookies.joined(head.headers)
        session = None if raw is None else self._cookie.session(raw)
        method = "WEBSOCKET" if head.websocket else head.method
        roles = self._routes.find(method, path)
        if roles:
            return self.by_role(head, roles, session, put=False)
        if session is not None:
            return Reading(session, True)
        return NO_SESSION if method in SAFE or head.websocket else self._new
