"""Small ASGI apps for the tests of the whole product."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

STATE: dict[str, Any] = {}


async def whoami(request: Request) -> Response:
    """The pid of the worker that runs this; without a session."""
    return PlainTextResponse(str(os.getpid()))


async def nodelay(request: Request) -> Response:
    """TCP_NODELAY of the connection that this request came on."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.getpeername() == (request.client.host, request.client.port):  # type: ignore[union-attr]
                    return JSONResponse(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
    return JSONResponse(None)


async def seed(request: Request) -> Response:
    """Start a session."""
    session = request.session.get("session_id", "")
    STATE[session] = await request.json()
    return JSONResponse({"pid": os.getpid(), "session": session})


async def show(request: Request) -> Response:
    """What the session holds, and who runs this."""
    return JSONResponse({"pid": os.getpid(), "state": STATE.get(request.session.get("session_id", ""))})


async def slow(request: Request) -> Response:
    """Answers after `seconds`."""
    await asyncio.sleep(float(request.query_params["seconds"]))
    return JSONResponse({"pid": os.getpid()})


async def echo(request: Request) -> Response:
    """The scope as the app sees it, and the body."""
    scope = request.scope
    seen = {
        key: scope.get(key) for key in ("method", "path", "http_version", "scheme", "root_path", "client", "server")
    }
    seen["raw_path"] = scope["raw_path"].decode("latin1")
    seen["query_string"] = scope["query_string"].decode("latin1")
    seen["headers"] = [(name.decode("latin1"), value.decode("latin1")) for name, value in scope["headers"]]
    seen["body"] = (await request.body()).decode("latin1")
    seen["pid"] = os.getpid()
    return JSONResponse(seen)


async def cookies(request: Request) -> Response:
    """A reply with several Set-Cookie headers."""
    reply = PlainTextResponse("ok")
    reply.headers.append("set-cookie", "a=1; path=/")
    reply.headers.append("set-cookie", "b=2; path=/")
    return reply


async def status(request: Request) -> Response:
    """A reply with the status asked for."""
    return Response(status_code=int(request.path_params["code"]))


async def count(request: Request) -> Response:
    """How many bytes came."""
    total = 0
    async for chunk in request.stream():
        total += len(chunk)
    return JSONResponse({"bytes": total, "pid": os.getpid()})


async def stream(request: Request) -> Response:
    """`n` chunks of `size` bytes, `pause` seconds apart."""
    n, size = int(request.query_params["n"]), int(request.query_params["size"])
    pause = float(request.query_params.get("pause", "0"))

    async def chunks() -> Any:
        for _ in range(n):
            yield b"x" * size
            await asyncio.sleep(pause)

    return StreamingResponse(chunks())


async def fail(request: Request) -> Response:
    """Raises."""
    raise RuntimeError("the app's own error")


async def websocket_pid(websocket: WebSocket) -> None:
    """Answers with the pid."""
    await websocket.accept()
    await websocket.send_text(str(os.getpid()))
    await websocket.close()


class AssignId:
    """Gives every request a session id, as Gym's middleware does."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass on, with an id in the session."""
        if scope["type"] == "http":
            from uuid import uuid4

            session = scope["session"]
            session["session_id"] = session.get("session_id", str(uuid4()))
        await self.app(scope, receive, send)


ROUTES = [
    Route("/whoami", whoami),
    Route("/nodelay", nodelay),
    Route("/seed_session", seed, methods=["POST"]),
    Route("/show", show, methods=["GET", "POST"]),
    Route("/verify", show, methods=["POST"]),
    Route("/slow", slow, methods=["GET", "POST"]),
    Route("/echo/{rest:path}", echo, methods=["GET", "POST", "PUT", "DELETE", "HEAD"]),
    Route("/cookies", cookies, methods=["POST"]),
    Route("/status/{code}", status, methods=["POST", "HEAD"]),
    Route("/count", count, methods=["POST"]),
    Route("/stream", stream, methods=["GET", "POST"]),
    Route("/fail", fail, methods=["POST"]),
    WebSocketRoute("/ws", websocket_pid),
]

NAME = "TestServer___app"

gym = Starlette(
    routes=ROUTES,
    middleware=[
        Middleware(SessionMiddleware, secret_key=NAME, session_cookie=NAME),
        Middleware(AssignId),
    ],
)
"""A Gym-like resources server."""


async def headers(scope: Any, receive: Any, send: Any) -> None:
    """A server whose session id travels in the header x-session; POST /new hands one out in its reply."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    sent = dict(scope["headers"])
    session = sent.get(b"x-session", b"").decode()
    extra = []
    if scope["path"] == "/new":
        session = os.urandom(8).hex()
        STATE[session] = 0
        extra = [(b"x-session", session.encode())]
    elif session in STATE:
        STATE[session] += 1
    out = str(os.getpid()) if scope["path"] == "/whoami" else json.dumps({"pid": os.getpid(), "n": STATE.get(session)})
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(out)), *extra]}
    )
    await send({"type": "http.response.body", "body": out.encode()})
