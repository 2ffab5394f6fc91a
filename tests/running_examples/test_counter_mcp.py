"""The counter with its MCP endpoint: the real client, with the token alone, on every worker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from running_examples.clients import Client
from running_examples.services import example
from whole.harness import Service, eventually

pytest.importorskip("mcp")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The example, running."""
    running = example(tmp_path_factory.mktemp("mcp"), "counter_mcp", server="counter").start()
    yield running
    assert running.stop() == 0, running.log.read_text()
    assert running.cleanup() == []


Mode = Literal["legacy", "auto"]


async def with_the_token_alone(url: str, headers: dict[str, str], counts: list[int], mode: Mode) -> int:
    """Increments and a look over MCP, each call on a connection of its own; the value."""
    import httpx2
    from mcp import Client as McpClient
    from mcp.client.streamable_http import streamable_http_client

    limits = httpx2.Limits(max_keepalive_connections=0)
    async with httpx2.AsyncClient(headers=headers, limits=limits, timeout=30) as http:
        async with McpClient(streamable_http_client(url, http_client=http), mode=mode) as client:
            for count in counts:
                result = await client.call_tool("increment_counter", {"count": count})
                assert not result.is_error, result
            result = await client.call_tool("get_counter_value", {})
            return int(result.structured_content["result"])


def seeded(service: Service, count: int) -> tuple[Client, dict[str, str]]:
    """A session at a count, and the headers that its seed hands out."""
    client = Client()
    status, reply = client.post(service.connect(), "/seed_session", {"initial_count": count})
    assert status == 200
    return client, reply["mcp"]["headers"]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_token_alone_leads_to_the_session(service: Service, mode: Mode) -> None:
    """Ten sessions over MCP and over plain HTTP: one count each, whoever accepts the connections."""

    async def play() -> list[int]:
        return await asyncio.gather(
            *(with_the_token_alone(f"{service.url}/mcp", headers, [1, 2, 3], mode) for _, headers in sessions)
        )

    sessions = [seeded(service, 10 * number) for number in range(10)]
    assert asyncio.run(play()) == [10 * number + 6 for number in range(10)]
    for number, (client, _) in enumerate(sessions):
        expected = {"expected_count": 10 * number + 6}
        assert client.post(service.connect(), "/verify", expected)[1]["reward"] == 1.0
    assert sum(row.relayed_in for row in service.rows().values()) > 0


def test_another_sessions_cookie_beside_the_token(service: Service) -> None:
    """What an MCP client keeps of other replies does not matter: the token's session is served, and named."""
    one, headers = seeded(service, 5)
    other, _ = seeded(service, 50)
    assert one.cookie is not None
    session = one.cookie
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "get_counter_value", "arguments": {}}}
    accept = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    for connection in [service.connect() for _ in range(6)]:
        other.cookie = other.cookie or session
        status, reply = other.post(connection, "/mcp", call, headers={**headers, **accept})
        assert (status, reply["result"]["structuredContent"]) == (200, {"result": 5})
        assert other.post(connection, "/get_counter_value")[1] == {"count": 5}  # the reply's cookie names it too


def test_mcp_without_a_token_leaves_nothing(service: Service) -> None:
    """Initialize, list, ping: no claim, no cookie."""

    def claims() -> int:
        with service.segment() as segment:
            return int(segment.table.count()[0])

    before = claims()
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    connection = service.connect()
    for _ in range(20):
        status, headers, content = connection.ask(
            "POST", "/mcp", body=body, headers={"accept": "application/json", "content-type": "application/json"}
        )
        assert status == 200, content
        assert len(json.loads(content)["result"]["tools"]) == 2
        assert headers["set-cookie"] is None
    eventually(lambda: claims() <= before, "no claim of an MCP call")
