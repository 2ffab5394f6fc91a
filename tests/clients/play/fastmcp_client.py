"""Sessions with fastmcp's client: MCP's own (`legacy`, `sse`), or those of its SessionProvider (`provider`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx2
from fastmcp import Client
from fastmcp.client.transports import SSETransport, StreamableHttpTransport
from sessions import KEEP, MORE, URL, play_all, see_death

LIMITS = httpx2.Limits(max_keepalive_connections=100 if KEEP else 0, max_connections=1000)


def http(headers: Any = None, timeout: Any = None, auth: Any = None, **more: Any) -> httpx2.AsyncClient:
    """An HTTP client."""
    return httpx2.AsyncClient(headers=headers, timeout=timeout or 30, auth=auth, limits=LIMITS, **more)


def client() -> Client[Any]:
    """A session's client."""
    if "sse" in MORE:
        return Client(SSETransport(f"{URL}/sse", httpx_client_factory=http), mode="legacy")
    transport = StreamableHttpTransport(f"{URL}/mcp", httpx_client_factory=http)
    return Client(transport, mode="auto" if "provider" in MORE else "legacy")


async def play(number: int) -> None:
    """One session."""
    async with client() as found:
        if "provider" in MORE:
            session = (await found.call_tool("create_session", {})).data
            for turn in range(1, 7):
                total = (await found.call_tool("add", {"number": number, "session_id": session})).data
                assert total == number * turn, (total, number * turn)
            await found.call_tool("end_session", {"session_id": session})
            return
        for turn in range(6):
            assert (await found.call_tool("note", {"text": f"{number}-{turn}"})).data == turn + 1
        assert (await found.call_tool("notes", {})).data == [f"{number}-{turn}" for turn in range(6)]


@contextlib.asynccontextmanager
async def opened(_number: int) -> AsyncIterator[Client[Any]]:
    """A session's client."""
    async with client() as found:
        yield found


async def count(found: Client[Any]) -> str:
    """Something that takes a while."""
    await found.call_tool("count", {"to": 60})
    return "right"


async def notes(found: Client[Any]) -> str:
    """Something that needs the session."""
    await found.call_tool("notes", {})
    return "right"


asyncio.run(see_death(opened, count, notes) if "death" in MORE else play_all(play))
