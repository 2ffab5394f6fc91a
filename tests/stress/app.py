"""A counter-like server for the stress command: it fails as it is told, and writes down each session that it creates.

Seeds are typed or not; increments carry their number, so that one that is sent again after a broken connection counts
once. Each worker appends the ids of the sessions it creates to a file of its own in STRESS_DIR.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

from itsdangerous import BadData, URLSafeSerializer
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from examples.counter import SessionIds

NAME = "StressResourcesServer___stress"
TOKEN_HEADER = "x-nemo-gym-session-token"

tokens = URLSafeSerializer(NAME, salt="nemo-gym-mcp-session-token")


class State:
    """What a session holds."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.steps = 0

    def increment(self, count: int, step: int | None) -> None:
        """Count a step once; one without a number is a new one."""
        if step in (None, self.steps + 1):
            self.steps += 1
            self.count += count


class Server:
    """The sessions of one worker."""

    def __init__(self) -> None:
        self.sessions: dict[str, State] = {}
        folder = os.environ["STRESS_DIR"]
        self.created = os.open(f"{folder}/created.{os.getpid()}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def create(self, request: Request, count: int = 0) -> State:
        """A new session, or one that is seeded again. It goes at the latest with its claim."""
        session = request.session["session_id"]
        if session not in self.sessions:
            os.write(self.created, f"{session}\n".encode())
            request.scope["extensions"]["gym_supervise"].on_end(lambda: self.sessions.pop(session, None))
        self.sessions[session] = State(count)
        return self.sessions[session]

    def of(self, request: Request) -> State:
        """The request's session; made where it was never seeded."""
        return self.sessions.get(request.session["session_id"]) or self.create(request)

    async def seed(self, request: Request) -> Response:
        """Start a session, or fail as the body says: before the reply (500), in its middle (cut), or without a client
        that would get it (left).
        """
        body = await request.json()
        if not body.get("lazy"):
            self.create(request, body.get("initial_count", 0))
        if body.get("fail") == "left":
            while (await request.receive())["type"] != "http.disconnect":
                pass
        if body.get("fail") == "500":
            raise RuntimeError("asked for")
        if body.get("fail") == "cut":
            return StreamingResponse(cut_off(), headers={"content-length": "1000"})
        token = tokens.dumps({"sid": request.session["session_id"], "tools": None})
        return JSONResponse({"mcp": {"headers": {TOKEN_HEADER: token}}})

    async def increment(self, request: Request) -> Response:
        """Count a step."""
        body = await request.json()
        self.of(request).increment(body["count"], body.get("step"))
        return JSONResponse({"success": True})

    async def value(self, request: Request) -> Response:
        """The session's count, and who counts."""
        return JSONResponse({"count": self.of(request).count, "pid": os.getpid()})

    async def verify(self, request: Request) -> Response:
        """The reward; the session's state goes, unless a close follows."""
        body = await request.json()
        reward = 1.0 if self.of(request).count == body["expected_count"] else 0.0
        if "x-ng-checkpoint-close-follows" not in request.headers:
            self.sessions.pop(request.session["session_id"], None)
        return JSONResponse({"reward": reward})

    async def close(self, request: Request) -> Response:
        """End a session; whether there was one."""
        return JSONResponse({"had": self.sessions.pop(request.session["session_id"], None) is not None})

    async def left(self, _request: Request) -> Response:
        """How many sessions this worker still holds."""
        return JSONResponse(len(self.sessions))


async def cut_off() -> AsyncIterator[bytes]:
    """A reply that breaks off."""
    yield b"x" * 100
    raise RuntimeError("asked for")


async def whoami(_request: Request) -> Response:
    """The pid of the worker."""
    return PlainTextResponse(str(os.getpid()))


def mcp_routes(server: Server) -> tuple[list[BaseRoute], Any]:
    """The MCP endpoint over the same sessions, and its session manager."""
    mcp = MCPServer("stress")

    def state_of(context: Context) -> State:
        try:
            return server.sessions[tokens.loads((context.headers or {})[TOKEN_HEADER])["sid"]]
        except (BadData, KeyError):
            raise ToolError("no such session here") from None

    @mcp.tool()
    async def increment_counter(count: int, step: int, context: Context) -> bool:
        """Count a step."""
        state_of(context).increment(count, step)
        return True

    @mcp.tool()
    async def get_counter_value(context: Context) -> int:
        """The session's count."""
        return state_of(context).count

    endpoint = mcp.streamable_http_app(stateless_http=True, json_response=True)
    return list(endpoint.routes), mcp.session_manager


def make() -> Any:
    """The app of one worker."""
    server = Server()
    endpoint, manager = mcp_routes(server)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    return Starlette(
        routes=[
            Route("/seed_session", server.seed, methods=["POST"]),
            Route("/increment_counter", server.increment, methods=["POST"]),
            Route("/get_counter_value", server.value, methods=["POST"]),
            Route("/verify", server.verify, methods=["POST"]),
            Route("/close_session", server.close, methods=["POST"]),
            Route("/whoami", whoami),
            Route("/left", server.left),
            *endpoint,
        ],
        middleware=[
            Middleware(SessionMiddleware, secret_key=NAME, session_cookie=NAME),
            Middleware(SessionIds),
        ],
        lifespan=lifespan,
    )
