"""A Gym-like server for the conformance suite: every route of the contract, state per instance, and who ran what.

Each reply names in `x-ran` the instance that ran it; `make` builds one instance, the factories are for real workers,
whose instance is their pid. A request's body may ask for how it goes: `status`, `raise`, `cut` or `short` (the reply
breaks off), `wait` (seconds before it), `hold` (it comes after a POST /release), `background` (it goes on until then).
"""

from __future__ import annotations

import asyncio
import json
import os
from base64 import b64encode
from typing import Any
from uuid import uuid4

from itsdangerous import TimestampSigner
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

RESOURCES = "TestResources___counter"
AGENT = "TestAgent___agent"


class GiveId:
    """Assigns the session's id on every request, as Gym's middleware does, and says who ran it."""

    def __init__(self, app: Any, *, instance: str, seen: list[str]) -> None:
        self.app = app
        self.instance = instance
        self.seen = seen

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self.seen.append(f"{scope['method']} {scope['path']}")
        session = scope["session"]
        session["session_id"] = session.get("session_id", str(uuid4()))

        async def named(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), (b"x-ran", self.instance.encode())]
            await send(message)

        await self.app(scope, receive, named)


class Instance:
    """One instance of the `resources` or the `agent` server, and its state."""

    def __init__(self, kind: str, instance: str) -> None:
        self.name = RESOURCES if kind == "resources" else AGENT
        self.instance = instance
        self.field = "session_id" if kind == "resources" else "agent_session_id"
        self.kind = kind
        self.counts: dict[str, int] = {}
        self.seen: list[str] = []
        self.released = asyncio.Event()

    async def handle(self, request: Request) -> Response:
        """Count one more for the session, and do as the body says."""
        body = await body_of(request)
        if self.kind == "agent" and request.url.path.endswith("/v1/agent_sessions"):
            request.session[self.field] = body.get("agent_session_id") or str(uuid4())
        session = request.session.get(self.field, "")
        if body.get("hold"):
            await self.released.wait()
        if body.get("wait"):
            await asyncio.sleep(body["wait"])
        if body.get("raise"):
            raise RuntimeError("asked for")
        if body.get("cut"):
            return StreamingResponse(cut_off())
        if body.get("short"):
            return Response(b"half of", headers={"content-length": "14"})
        if body.get("status"):
            return JSONResponse({"session": session}, status_code=body["status"])
        self.counts[session] = self.counts.get(session, 0) + 1
        task = BackgroundTask(self.released.wait) if body.get("background") else None
        body.pop("pad", None)
        return JSONResponse({"session": session, "count": self.counts[session], **body}, background=task)

    async def socket(self, websocket: WebSocket) -> None:
        """Count one more for the session and say so; at /play the accept gives out the id, `to` where that is asked."""
        session = {**websocket.session}
        headers = [(b"x-ran", self.instance.encode())]
        if websocket.url.path.endswith("/refuse"):
            await websocket.close()
            return
        if websocket.url.path.endswith("/play"):
            session[self.field] = websocket.query_params.get("to") or session.get(self.field) or str(uuid4())
            cookie = TimestampSigner(self.name).sign(b64encode(json.dumps(session).encode())).decode()
            headers.append((b"set-cookie", f"{self.name}={cookie}; path=/".encode()))
        named = session.get(self.field, "")
        self.counts[named] = self.counts.get(named, 0) + 1
        await websocket.accept(headers=headers)
        await websocket.send_json({"session": named, "count": self.counts[named]})
        await websocket.close()

    async def release(self, _request: Request) -> Response:
        """Let what goes on in the background end."""
        self.released.set()
        return JSONResponse({})

    async def rotate(self, request: Request) -> Response:
        """Another id for the client, as at a login."""
        request.session[self.field] = (await body_of(request)).get("to", str(uuid4()))
        return JSONResponse({})

    async def clear(self, request: Request) -> Response:
        """No id any more, as at a logout."""
        request.session.clear()
        return JSONResponse({})

    async def forget(self, request: Request) -> Response:
        """No id any more, but other data."""
        request.session.clear()
        request.session["flash"] = "bye"
        return JSONResponse({})

    async def requests(self, _request: Request) -> Response:
        """What this instance has seen."""
        return JSONResponse(self.seen)


async def cut_off() -> Any:
    """A reply that never ends as it should."""
    yield b"half of"
    raise RuntimeError("asked for")


async def body_of(request: Request) -> dict[str, Any]:
    """The body where it is an object, else nothing."""
    try:
        body = json.loads(await request.body())
    except (ValueError, ClientDisconnect):
        return {}
    return body if isinstance(body, dict) else {}


async def moved(_request: Request) -> Response:
    """A redirect."""
    return RedirectResponse("/elsewhere", 307)


async def pid(_request: Request) -> Response:
    """The worker."""
    return PlainTextResponse(str(os.getpid()))


async def missing(_request: Request) -> Response:
    """A handler's own 404."""
    return JSONResponse({}, status_code=404)


def make(kind: str, instance: str) -> Any:
    """One instance of the `resources` or the `agent` server."""
    server = Instance(kind, instance)
    routes = [
        Route("/nowhere", missing, methods=["GET"]),
        Route("/pid", pid, methods=["GET"]),
        Route("/", server.handle, methods=["GET"]),
        Route("/seen", server.requests, methods=["GET"]),
        Route("/rotate", server.rotate, methods=["POST"]),
        Route("/clear", server.clear, methods=["POST"]),
        Route("/forget", server.forget, methods=["POST"]),
        Route("/release", server.release, methods=["POST"]),
        Route("/moved", moved, methods=["POST"]),
        Route("/missing", missing, methods=["POST"]),
        Route("/read", server.handle, methods=["GET"]),
        Route("/ng-rollout/{rest:path}", server.handle, methods=["POST"]),
        Route("/training-token-capture/{rest:path}", server.handle, methods=["POST"]),
        Route("/mcp", server.handle, methods=["POST"]),
        Route("/mcp/{rest:path}", server.handle, methods=["GET", "POST"]),
        *(Route(path, server.handle, methods=["POST"]) for path in POSTS),
        *(WebSocketRoute(path, server.socket) for path in ("/socket", "/play", "/refuse", "/finish")),
    ]
    middleware = [
        Middleware(SessionMiddleware, secret_key=server.name, session_cookie=server.name),
        Middleware(GiveId, instance=instance, seen=server.seen),
    ]
    return Starlette(routes=routes, middleware=middleware)


POSTS = [
    "/seed_session",
    "/close_session",
    "/verify",
    "/reset",
    "/step",
    "/close",
    "/aggregate_metrics",
    "/dump",
    "/increment_counter",
    "/open_it",
    "/finish_it",
    "/v1/agent_sessions",
    "/v1/agent_sessions/close",
    "/v1/responses",
    "/run",
]


def resources_factory() -> Any:
    """An instance named by the pid of the worker that makes it."""
    return make("resources", str(os.getpid()))


def agent_factory() -> Any:
    """An instance named by the pid of the worker that makes it."""
    return make("agent", str(os.getpid()))
