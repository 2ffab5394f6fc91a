"""A stateful counter that speaks NeMo Gym's contract for resources servers.

Each session counts for itself, in the memory of the process that serves it. A session that this process does not know
counts from 0: on several plain workers that is a wrong answer nobody notices, which is what gym-supervise prevents.

    POST /seed_session       {"initial_count": n}         -> {}
    POST /increment_counter  {"count": n}                 -> {"success": true}
    POST /get_counter_value  {}                           -> {"count": n}
    POST /verify             {"expected_count": n, ...}   -> {"expected_count": n, ..., "reward": 1.0 or 0.0}
    GET  /                                                -> {"status": "ok"}
"""

from __future__ import annotations

import uuid
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

NAME = "counter"

# Gym derives both the cookie's name and its secret from the server's class and configured name.
SESSION_NAME = f"StatefulCounterResourcesServer___{NAME}"

counts: dict[str, int] = {}


class SessionIds:
    """Gives every request a session id, and so every reply a session cookie, as Gym's own middleware does."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            session = scope["session"]
            session["session_id"] = session.get("session_id", str(uuid.uuid4()))
        await self.app(scope, receive, send)


class Invalid(Exception):
    """A request's body is not what the route takes."""


async def fields(request: Request) -> dict[str, Any]:
    """The request's body, a JSON object."""
    try:
        body = await request.json()
    except ValueError as error:
        raise Invalid(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise Invalid("the body is not a JSON object")
    return body


def number(body: dict[str, Any], field: str, default: int | None = None) -> int:
    """A whole number in the body."""
    value = body.get(field, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Invalid(f"{field} is not a whole number")
    return value


async def seed_session(request: Request) -> Response:
    """Start a session at a count."""
    counts[request.session["session_id"]] = number(await fields(request), "initial_count", 0)
    return JSONResponse({})


async def increment_counter(request: Request) -> Response:
    """Add to the session's count."""
    step = number(await fields(request), "count")
    session = request.session["session_id"]
    counts[session] = counts.get(session, 0) + step
    return JSONResponse({"success": True})


async def get_counter_value(request: Request) -> Response:
    """The session's count."""
    return JSONResponse({"count": counts.get(request.session["session_id"], 0)})


async def verify(request: Request) -> Response:
    """The episode's reward: whether the session has come to the count that its task expects."""
    body = await fields(request)
    right = counts.get(request.session["session_id"], 0) == number(body, "expected_count")
    return JSONResponse({**body, "reward": 1.0 if right else 0.0})


async def alive(_request: Request) -> Response:
    """Answer whoever asks whether the server is up."""
    return JSONResponse({"status": "ok"})


async def invalid(_request: Request, error: Exception) -> Response:
    """Say what is wrong with a body."""
    return JSONResponse({"detail": str(error)}, status_code=422)


app = Starlette(
    routes=[
        Route("/seed_session", seed_session, methods=["POST"]),
        Route("/increment_counter", increment_counter, methods=["POST"]),
        Route("/get_counter_value", get_counter_value, methods=["POST"]),
        Route("/verify", verify, methods=["POST"]),
        Route("/", alive, methods=["GET"]),
    ],
    middleware=[
        Middleware(SessionMiddleware, secret_key=SESSION_NAME, session_cookie=SESSION_NAME),
        Middleware(SessionIds),
    ],
    exception_handlers={Invalid: invalid},
)
