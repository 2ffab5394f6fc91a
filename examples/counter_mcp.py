"""The counter with its tools over MCP as well: Streamable HTTP, stateless, JSON replies, as Gym mounts it.

    POST /seed_session  {"initial_count": n}  -> {"mcp": {"url": ..., "headers": {"X-NeMo-Gym-Session-Token": token}}}
    POST /mcp           MCP's JSON-RPC; tools increment_counter(count) and get_counter_value()

and everything else that the counter has. A harness that is given the seed's reply calls /mcp with the token alone, and
no cookie: the token names the session. Needs the `mcp` package.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from itsdangerous import BadData, URLSafeSerializer
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples import counter

TOKEN_HEADER = "X-NeMo-Gym-Session-Token"

tokens = URLSafeSerializer(counter.SESSION_NAME, salt="nemo-gym-mcp-session-token")
server = MCPServer("counter")


def session_of(context: Context) -> str:
    """The session that the request's token names."""
    token = (context.headers or {}).get(TOKEN_HEADER.lower(), "")
    try:
        return str(tokens.loads(token)["sid"])
    except (BadData, KeyError, TypeError):
        raise ToolError(f"no valid {TOKEN_HEADER}") from None


@server.tool()
async def increment_counter(count: int, context: Context) -> bool:
    """Add to the session's count."""
    session = session_of(context)
    counter.counts[session] = counter.counts.get(session, 0) + count
    return True


@server.tool()
async def get_counter_value(context: Context) -> int:
    """The session's count."""
    return counter.counts.get(session_of(context), 0)


async def seed_session(request: Request) -> Response:
    """Start a session at a count, and hand out its token."""
    await counter.seed_session(request)
    token = tokens.dumps({"sid": request.session["session_id"], "tools": None})
    return JSONResponse({"mcp": {"url": "/mcp", "headers": {TOKEN_HEADER: token}}})


endpoint = server.streamable_http_app(stateless_http=True, json_response=True)


@contextlib.asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[None]:
    """MCP's own tasks live as long as the worker."""
    async with server.session_manager.run():
        yield


app = Starlette(
    routes=[Route("/seed_session", seed_session, methods=["POST"]), *endpoint.routes, *counter.app.routes],
    middleware=counter.app.user_middleware,
    exception_handlers=dict(counter.app.exception_handlers),
    lifespan=lifespan,
)
