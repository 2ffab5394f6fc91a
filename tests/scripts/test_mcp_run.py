"""A script that never names uvicorn: the MCP SDK's own `run`, on several workers, with the SDK's client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from scripts.runs import Run

SCRIPT = """\
import os
from mcp.server import MCPServer
server = MCPServer("counter")
@server.tool()
def pid() -> int:
    return os.getpid()
if __name__ == "__main__":
    server.run(transport="streamable-http", host="127.0.0.1", port=0)
    print("it has served", flush=True)
"""

SESSIONS = 4


async def pids(url: str) -> set[str]:
    """Who answers one session's calls, each over a connection of the client's choice."""
    async with streamable_http_client(url) as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        replies = [await session.call_tool("pid", {}) for _ in range(4)]
        return {block.text for reply in replies for block in reply.content if block.type == "text"}


def test_an_mcp_script_on_several_workers(ran: Callable[..., Run]) -> None:
    """Every session stays with one worker, and there are several."""
    run = ran(["-w", "2", "--preset", "mcp"], SCRIPT, workers=2).start()

    async def together() -> list[set[str]]:
        return await asyncio.gather(*(pids(f"{run.url}/mcp") for _ in range(SESSIONS)))

    workers: set[str] = set()
    for _ in range(10):
        found = asyncio.run(together())
        assert all(len(session) == 1 for session in found), found
        workers = workers.union(*found)
        if len(workers) > 1 and sum(row.relayed_out for row in run.rows().values()):
            break
    else:
        pytest.fail("no session was relayed: nothing is shown")
    assert run.stop() == 0
    assert run.log.read_text().count("it has served") == 2
