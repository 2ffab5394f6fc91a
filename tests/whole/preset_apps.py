"""Servers that keep sessions in their own ways, for the presets."""

from __future__ import annotations

import json
import os
import re
from typing import Any
from uuid import uuid4

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

COUNTS: dict[str, int] = {}


async def whoami(_request: Request) -> Response:
    """The pid of the worker."""
    return PlainTextResponse(str(os.getpid()))


def counted(session: str | None, headers: dict[str, str] | None = None) -> Response:
    """Count one more for a session."""
    if session is not None:
        COUNTS[session] = COUNTS.get(session, 0) + 1
    return JSONResponse({"pid": os.getpid(), "n": COUNTS.get(session or ""), "session": session}, headers=headers)


async def by_header(request: Request) -> Response:
    """An id in x-session, given out in a reply's x-session where there is none."""
    session = request.headers.get("x-session")
    if session is None:
        session = uuid4().hex
        return counted(session, {"x-session": session})
    return counted(session)


async def by_query(request: Request) -> Response:
    """An id in the query, made by the client."""
    return counted(request.query_params.get("sid"))


async def by_path(request: Request) -> Response:
    """An id in the path, made by the client."""
    return counted(request.path_params["sid"])


async def by_json(request: Request) -> Response:
    """An id in the JSON body, made by the client."""
    return counted((await request.json())["sid"])


async def by_own_cookie(request: Request) -> Response:
    """No session of the app's own: it counts by the router's cookie."""
    return counted(request.cookies.get("gsv"))


custom = Starlette(
    routes=[
        Route("/whoami", whoami),
        Route("/header", by_header, methods=["GET", "POST", "DELETE"]),
        Route("/query", by_query, methods=["GET", "POST"]),
        Route("/path/{sid}", by_path, methods=["GET", "POST"]),
        Route("/json", by_json, methods=["POST"]),
        Route("/cookie", by_own_cookie, methods=["GET", "POST"]),
    ]
)


async def login(request: Request) -> Response:
    """The app makes the id."""
    request.session["user"] = uuid4().hex
    return counted(request.session["user"])


async def logout(request: Request) -> Response:
    """The app forgets it."""
    request.session.clear()
    return PlainTextResponse("bye")


async def me(request: Request) -> Response:
    """Count one more for the session."""
    return counted(request.session.get("user"))


browser = Starlette(
    routes=[
        Route("/whoami", whoami),
        Route("/login", login, methods=["POST"]),
        Route("/logout", logout, methods=["POST"]),
        Route("/me", me),
    ],
    middleware=[Middleware(SessionMiddleware, secret_key="s" * 32, session_cookie="sess")],
)


async def plain(scope: Any, receive: Any, send: Any) -> None:
    """No sessions, and a lifespan that keeps state for its requests."""
    if scope["type"] == "lifespan":
        await receive()
        scope["state"]["pid"] = os.getpid()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    assert re.fullmatch(r"/whoami|/x", scope["path"])
    body = json.dumps(scope["state"]["pid"]).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})
