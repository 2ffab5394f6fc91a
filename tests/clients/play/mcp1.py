"""Sessions with version 1 of MCP's SDK, over Streamable HTTP or, with `sse`, over HTTP+SSE."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from sessions import KEEP, MORE, URL, play_all, see_death

LIMITS = httpx.Limits(max_keepalive_connections=100 if KEEP else 0, max_connections=1000)


def http(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx.AsyncClient:
    """An HTTP client."""
    return httpx.AsyncClient(headers=headers, timeout=timeout or 30, auth=auth, limits=LIMITS)


@contextlib.asynccontextmanager
async def streams(shared: httpx.AsyncClient) -> AsyncIterator[Any]:
    """A session's two streams."""
    if "sse" in MORE:
        async with sse_client(f"{URL}/sse", httpx_client_factory=http) as found:
            yield found
    else:
        async with streamable_http_client(f"{URL}/mcp", http_client=shared) as (read, write, _):
            yield read, write


async def main() -> None:
    """All sessions share one pool of connections where the transport can be given one."""
    async with http() as shared:

        async def play(number: int) -> None:
            async with streams(shared) as (read, write), ClientSession(read, write) as session:
                await session.initialize()
                for turn in range(6):
                    result = await session.call_tool("note", {"text": f"{number}-{turn}"})
                    assert not result.isError, result.content
                    assert result.structuredContent == {"result": turn + 1}, result.structuredContent
                result = await session.call_tool("notes", {})
                assert result.structuredContent == {"result": [f"{number}-{turn}" for turn in range(6)]}

        @contextlib.asynccontextmanager
        async def opened(_number: int) -> AsyncIterator[ClientSession]:
            async with streams(shared) as (read, write), ClientSession(read, write) as session:
                await session.initialize()
                yield session

        async def count(session: ClientSession) -> str:
            result = await session.call_tool("count", {"to": 60})
            return "error" if result.isError else "right"

        async def notes(session: ClientSession) -> str:
            result = await session.call_tool("notes", {})
            return "error" if result.isError else "right"

        await (see_death(opened, count, notes) if "death" in MORE else play_all(play))


asyncio.run(main())
