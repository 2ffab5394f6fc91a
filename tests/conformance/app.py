"""A Gym-like server for the conformance suite: every route of the contract, state per instance, and who ran what.

Each reply names in `x-ran` the instance that ran it; `make` builds one instance, the module's `resources` and `agent`
are for real workers, whose instance is their pid.
"""

from __future__ import annotations

import json
import os
from typing import Any
from uuid import uuid4

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

RESOURCES = "TestResources___counter"
AGENT = "TestAgent___agent"


class GiveId:
    """Assigns the session's id on every request, as Gym's middleware does, and says who ran it."""

    def __init__(self, app: Any, *, field: str | None, instance: str, seen: list[str]) -> None:
        self.app = app
        self.field = field
        self.instance = instance
        self.seen = seen

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self.seen.append(f"{scope['method']} {scope['path']}")
        session = scope["session"]
        if self.field is not None:
            session[self.field] = session.get(self.field, str(uuid4()))

        async def named(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), (b"x-ran", self.instance.encode())]
            await send(message)

        await self.app(scope, receive, named)


def make(kind: str, instance: str) -> Any:
    """One instance of the `resources` or the `agent` server."""
    counts: dict[str, int] = {}
    seen: list[str] = []
    field = "session_id" if kind == "resources" else "agent_session_id"

    async def body_of(request: Request) -> dict[str, Any]:
        try:
            body = json.loads(await request.body())
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}

    async def handle(request: Request) -> Response:
        body = await body_of(request)
        if kind == "agent" and request.url.path.endswith("/v1/agent_sessions") and "agent_session_id" in body:
            request.session[field] = body["agent_session_id"]
        session = request.session.get(field, "")
        if body.get("raise"):
            raise RuntimeError("asked for")
        if body.get("status"):
            return JSONResponse({"session": session}, status_code=body["status"])
        counts[session] = counts.get(session, 0) + 1
        return JSONResponse({"session": session, "count": counts[session], **body})

    async def rotate(request: Request) -> Response:
        request.session[field] = (await body_of(request)).get("to", str(uuid4()))
        return JSONResponse({})

    async def clear(request: Request) -> Response:
        request.session.clear()
        return JSONResponse({})

    async def moved(_request: Request) -> Response:
        return RedirectResponse("/elsewhere", 307)

    async def requests(_request: Request) -> Response:
        return JSONResponse(seen)

    async def pid(_request: Request) -> Response:
        return PlainTextResponse(str(os.getpid()))

    async def missing(_request: Request) -> Response:
        return JSONResponse({}, status_code=404)

    routes = [
        Route("/nowhere", missing, methods=["GET"]),
        Route("/pid", pid, methods=["GET"]),
        Route("/", handle, methods=["GET"]),
        Route("/seen", requests, methods=["GET"]),
        Route("/rotate", rotate, methods=["POST"]),
        Route("/clear", clear, methods=["POST"]),
        Route("/moved", moved, methods=["POST"]),
        Route("/read", handle, methods=["GET"]),
        Route("/{path:path}", handle, methods=["POST"]),
    ]
    name = RESOURCES if kind == "resources" else AGENT
    middleware = [
        Middleware(SessionMiddleware, secret_key=name, session_cookie=name),
        Middleware(GiveId, field=field if kind == "resources" else None, instance=instance, seen=seen),
    ]
    return Starlette(routes=routes, middleware=middleware)


def resources_factory() -> Any:
    """An instance named by the pid of the worker that makes it."""
    return make("resources", str(os.getpid()))


def agent_factory() -> Any:
    """An instance named by the pid of the worker that makes it."""
    return make("agent", str(os.getpid()))
