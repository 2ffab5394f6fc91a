"""The counter as a server of Gym's newer kind: the client names the session, in the body of its seed and its close.

    POST /seed_session   {"resources_session_id": id, "initial_count": n}  -> {}
    POST /close_session  {"resources_session_id": id}                      -> {"closed": id, "final_count": n}

and the counter's other routes, which find the session by its cookie. A close that comes again gets the receipt of the
first one, and a seed that comes after its close is refused: the server keeps records of what it has closed.
"""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples import counter
from server_adapters.closed_sessions import ClosedSessionRecords

FIELD = "resources_session_id"

# Each record goes when the session's claim goes: then the id is free, for this worker as for any other.
closed: ClosedSessionRecords[dict[str, Any]] = ClosedSessionRecords()


async def named(request: Request) -> tuple[str, dict[str, Any]]:
    """The session that the body names, and the body. gym-supervise has put the same id into the session's cookie."""
    body = await counter.fields(request)
    session = body.get(FIELD)
    if not isinstance(session, str) or not session:
        raise counter.Invalid(f"{FIELD} is missing")
    request.session["session_id"] = session
    return session, body


async def seed_session(request: Request) -> Response:
    """Start a session at a count. A seed that is repeated, since its reply got lost, starts it again."""
    session, body = await named(request)
    receipt = closed.get(session)
    if receipt is not None:
        return JSONResponse({"detail": "this session is closed", **receipt}, status_code=409)
    counter.counts[session] = counter.number(body, "initial_count", 0)
    return JSONResponse({})


async def close_session(request: Request) -> Response:
    """End a session: what it held is freed, and its receipt is kept for a close that comes again."""
    session, _ = await named(request)
    receipt = closed.get(session)
    if receipt is None:
        receipt = {"closed": session, "final_count": counter.counts.pop(session, None)}
        closed.close(session, receipt, request.scope)
    return JSONResponse(receipt)


app = Starlette(
    routes=[
        Route("/seed_session", seed_session, methods=["POST"]),
        Route("/close_session", close_session, methods=["POST"]),
        *counter.app.routes,
    ],
    middleware=counter.app.user_middleware,
    exception_handlers=dict(counter.app.exception_handlers),
)
