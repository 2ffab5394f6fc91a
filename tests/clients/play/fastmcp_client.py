"""Sessions with fastmcp's client: MCP's own (`legacy`, `sse`), or those of its SessionProvider (`provider`)."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
from fastmcp import Client
from fastmcp.client.transports import SSETransport, StreamableHttpTransport
from sessions import KEEP, MORE, URL, play_all

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


asyncio.run(play_all(play))
