"""Notes with fastmcp: `app` over Streamable HTTP, `sse` over HTTP+SSE, with fastmcp's own sessions beside MCP's."""

from __future__ import annotations

import asyncio

from fastmcp import Context, FastMCP
from fastmcp.server.dependencies import get_http_request, get_session
from fastmcp.server.sessions import SessionId, SessionProvider

kept: dict[str, list[str]] = {}
server = FastMCP("notes")
server.add_provider(SessionProvider())


def notes_of() -> list[str]:
    """The notes of the request's MCP session."""
    request = get_http_request()
    session = request.headers.get("mcp-session-id") or request.query_params["session_id"]
    return kept.setdefault(session, [])


@server.tool
async def note(text: str) -> int:
    """Keep a note; returns how many there are."""
    found = notes_of()
    found.append(text)
    return len(found)


@server.tool
async def notes() -> list[str]:
    """The session's notes."""
    return list(notes_of())


@server.tool
async def add(number: int, session_id: SessionId) -> int:
    """Add to the sum of a session of fastmcp's."""
    session = await get_session(session_id)
    total: int = (await session.get("sum", 0)) + number
    await session.set("sum", total)
    return total


@server.tool
async def count(to: int, ctx: Context) -> int:
    """Count slowly, and tell the client how far it has come."""
    for number in range(to):
        await ctx.report_progress(number, to)
        await asyncio.sleep(0.1)
    return to


app = server.http_app()
sse = server.http_app(transport="sse")
