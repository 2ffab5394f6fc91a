"""Notes over MCP: a server with sessions, as the SDK makes it by default (Streamable HTTP, stateful).

    POST /mcp   tools: note(text) and notes() keep the session's notes; order(dish) asks the user how many
                before it answers; count(to) reports its progress

Clients up to 2025-11-25 get a session, which lives in the worker that made it. Those of 2026-07-28 have none; `order`
still spans two requests, and its state is sealed with a key that each worker draws for itself. Needs the `mcp` package.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel

SESSION_HEADER = "mcp-session-id"

kept: dict[str, list[str]] = {}
server = MCPServer("notes")


class Amount(BaseModel):
    """What `order` asks the user."""

    number: int


def notes_of(context: Context) -> list[str]:
    """The notes of the request's session; those of no session are kept by nobody."""
    request = context.request_context.request
    session = None if request is None else request.headers.get(SESSION_HEADER) or request.query_params.get("session_id")
    return [] if session is None else kept.setdefault(session, [])


@server.tool()
async def note(text: str, context: Context) -> int:
    """Keep a note; returns how many there are."""
    found = notes_of(context)
    found.append(text)
    return len(found)


@server.tool()
async def notes(context: Context) -> list[str]:
    """The session's notes."""
    return list(notes_of(context))


def how_many(dish: str) -> Elicit[Amount]:
    """The question to the user."""
    return Elicit(f"How many {dish}?", Amount)


@server.tool()
async def order(dish: str, amount: Annotated[Amount, Resolve(how_many)]) -> str:
    """Order as many as the user wants."""
    return f"{amount.number} {dish}"


@server.tool()
async def count(to: int, context: Context) -> int:
    """Count slowly, and tell the client how far it has come."""
    for number in range(to):
        await context.report_progress(number, to)
        await asyncio.sleep(0.1)
    return to


app = server.streamable_http_app()
