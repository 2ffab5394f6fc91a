"""Sessions with version 2 of MCP's SDK: `legacy` and `sse` have sessions, `auto` has sealed requestStates alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx2
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult
from sessions import KEEP, MORE, URL, play_all, see_death

LIMITS = httpx2.Limits(max_keepalive_connections=100 if KEEP else 0, max_connections=1000)


async def answer(_context: Any, _params: Any) -> Any:
    """The user wants three."""
    return ElicitResult(action="accept", content={"number": 3})


def http(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
    """An HTTP client."""
    return httpx2.AsyncClient(headers=headers, timeout=timeout or 30, auth=auth, limits=LIMITS)


@contextlib.asynccontextmanager
async def client(shared: httpx2.AsyncClient) -> AsyncIterator[Client]:
    """A session's client."""
    if "sse" in MORE:
        transport: Any = sse_client(f"{URL}/sse", httpx_client_factory=http)
    else:
        transport = streamable_http_client(f"{URL}/mcp", http_client=shared)
    mode: Any = "auto" if "auto" in MORE else "legacy"
    async with Client(transport, mode=mode, elicitation_callback=answer) as found:
        yield found


async def main() -> None:
    """All sessions share one pool of connections where the transport can be given one."""
    async with http() as shared:

        async def call(found: Client, tool: str, **arguments: Any) -> Any:
            result = await found.call_tool(tool, arguments)
            assert not result.is_error, result.content
            assert result.structured_content is not None
            return result.structured_content["result"]

        async def play(number: int) -> None:
            async with client(shared) as found:
                for turn in range(6):
                    if "auto" in MORE:
                        assert await call(found, "order", dish=f"tea-{number}-{turn}") == f"3 tea-{number}-{turn}"
                    else:
                        assert await call(found, "note", text=f"{number}-{turn}") == turn + 1
                if "auto" not in MORE:
                    assert await call(found, "notes") == [f"{number}-{turn}" for turn in range(6)]

        @contextlib.asynccontextmanager
        async def opened(_number: int) -> AsyncIterator[Client]:
            async with client(shared) as found:
                yield found

        async def count(found: Client) -> str:
            await call(found, "count", to=60)
            return "right"

        async def notes(found: Client) -> str:
            await call(found, "notes")
            return "right"

        await (see_death(opened, count, notes) if "death" in MORE else play_all(play))


asyncio.run(main())
