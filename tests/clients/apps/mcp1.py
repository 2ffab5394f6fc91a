"""Notes over MCP with version 1 of the SDK: `app` over Streamable HTTP, `sse` over HTTP+SSE."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp.server.fastmcp import Context, FastMCP

kept: dict[str, list[str]] = {}
server = FastMCP("notes")


def notes_of(context: Context[Any, Any, Any]) -> list[str]:
    """The notes of the request's session."""
    request = context.request_context.request
    session = request.headers.get("mcp-session-id") or request.query_params["session_id"]
    return kept.setdefault(session, [])


@server.tool()
async def note(text: str, ctx: Context[Any, Any, Any]) -> int:
    """Keep a note; returns how many there are."""
    found = notes_of(ctx)
    found.append(text)
    return len(found)


@server.tool()
async def notes(ctx: Context[Any, Any, Any]) -> list[str]:
    """The session's notes."""
    return list(notes_of(ctx))


@server.tool()
async def count(to: int, ctx: Context[Any, Any, Any]) -> int:
    """Count slowly, and tell the client how far it has come."""
    for number in range(to):
        await ctx.report_progress(number, to)
        await asyncio.sleep(0.1)
    return to


app = server.streamable_http_app()
sse = server.sse_app()
