"""MCP's transports with sessions: the SDK's own client, its connections on every worker, and an owner that dies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
from running_examples.services import example
from whole.harness import Service, eventually

pytest.importorskip("mcp")

Mode = Literal["legacy", "auto"]
SESSIONS = 8


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The example, running; the log is JSON, so that access lines can be read."""
    yield from running(example(tmp_path_factory.mktemp("mcp"), "mcp_notes", server="notes", log=LOG))


@pytest.fixture(scope="module")
def sse_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The example of the older transport, running."""
    yield from running(
        example(tmp_path_factory.mktemp("sse"), "mcp_notes_sse", server="notes", log=LOG, affinity=SHORT)
    )


LOG = {"format": "json"}
SHORT = {"session_close_retry_window_seconds": 0.3}


def running(service: Service) -> Iterator[Service]:
    """A service, from its start to its end, which leaves nothing."""
    service.start()
    yield service
    assert service.stop() == 0, service.log.read_text()
    assert service.cleanup() == []


@asynccontextmanager
async def client(service: Service, mode: Mode, *, sse: bool = False, kept_alive: bool = False) -> AsyncIterator[Any]:
    """The SDK's client; each request has a connection of its own unless they are kept alive."""
    import httpx2
    from mcp import Client
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp_types import ElicitResult

    async def accept(_context: Any, _params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"number": 3})

    answer: Any = accept

    def http(headers: Any = None, timeout: Any = 30, auth: Any = None) -> httpx2.AsyncClient:
        limits = httpx2.Limits(max_keepalive_connections=20 if kept_alive else 0)
        return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, limits=limits)

    if sse:
        transport: Any = sse_client(f"{service.url}/sse", httpx_client_factory=http)
        async with Client(transport, mode=mode, elicitation_callback=answer) as found:
            yield found
        return
    async with http() as connections:
        transport = streamable_http_client(f"{service.url}/mcp", http_client=connections)
        async with Client(transport, mode=mode, elicitation_callback=answer) as found:
            yield found


async def value(client: Any, tool: str, **arguments: Any) -> Any:
    """What a tool returns."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    return result.structured_content["result"]


async def notes(service: Service, name: str, **options: Any) -> list[str]:
    """One session that keeps six notes, and asks the user in between."""
    async with client(service, "legacy", **options) as found:
        for number in range(6):
            assert await value(found, "note", text=f"{name}-{number}") == number + 1
        assert await value(found, "order", dish="tea") == "3 tea"
        kept: list[str] = await value(found, "notes")
        return kept


def accepting_workers(service: Service) -> dict[str, set[int]]:
    """By the shown part of a session's id: the workers that accepted its requests."""
    found: dict[str, set[int]] = {}
    for line in service.log.read_text().splitlines():
        content = json.loads(line)
        if content.get("logger") == "uvicorn.access" and content.get("session"):
            found.setdefault(content["session"], set()).add(content["worker"])
    return found


@pytest.mark.parametrize("kept_alive", [False, True], ids=["a connection per request", "kept alive"])
def test_sessions(service: Service, kept_alive: bool) -> None:
    """Each session has its own notes, whichever workers its requests land on, and a question to its user comes back."""

    async def play() -> list[list[str]]:
        return await asyncio.gather(*(notes(service, f"s{n}", kept_alive=kept_alive) for n in range(SESSIONS)))

    before = set(accepting_workers(service))
    assert asyncio.run(play()) == [[f"s{n}-{number}" for number in range(6)] for n in range(SESSIONS)]

    def seen() -> dict[str, set[int]]:
        return {name: on for name, on in accepting_workers(service).items() if name not in before}

    eventually(lambda: len(seen()) == SESSIONS, "the access lines")
    if not kept_alive:
        assert all(len(workers) > 1 for workers in seen().values())


def test_a_request_state(service: Service) -> None:
    """Sealed by one worker with its own key, it comes back to that worker."""

    async def play() -> list[str]:
        async with client(service, "auto") as found:
            return [await value(found, "order", dish=f"tea-{number}") for number in range(12)]

    assert asyncio.run(play()) == [f"3 tea-{number}" for number in range(12)]


def test_sessions_over_sse(sse_service: Service) -> None:
    """The stream on one worker, the posts on others."""

    async def play() -> list[list[str]]:
        return await asyncio.gather(*(notes(sse_service, f"s{n}", sse=True) for n in range(SESSIONS)))

    assert asyncio.run(play()) == [[f"s{n}-{number}" for number in range(6)] for n in range(SESSIONS)]
    eventually(lambda: len(accepting_workers(sse_service)) == SESSIONS, "the access lines")
    assert all(len(workers) > 1 for workers in accepting_workers(sse_service).values())


def claims(service: Service) -> dict[str, int]:
    """The owners' incarnations of the live claims, by the shown part of each id."""
    found = json.loads(service.run("claims", "--json").stdout)
    return {claim["session"]: claim["incarnation"] for claim in found if claim["state"] == "live"}


def test_a_session_ends_with_its_stream(sse_service: Service) -> None:
    """No claim is left when the window after it is over."""
    assert len(asyncio.run(notes(sse_service, "short", sse=True))) == 6
    eventually(lambda: not claims(sse_service), "no claim")


def test_a_lost_session(service: Service) -> None:
    """While its tools run the worker dies: each call ends at once, those of other workers' connections with the error
    that tells why; so does every later call; a new session works.
    """
    from mcp import MCPError

    async def play() -> list[str]:
        before = set(claims(service))
        async with client(service, "legacy") as found:
            assert await value(found, "note", text="lost") == 1
            (owner,) = {incarnation for name, incarnation in claims(service).items() if name not in before}
            pid = next(pid for pid, row in service.rows().items() if row.incarnation == owner)
            calls = [asyncio.ensure_future(found.call_tool("count", {"to": 600})) for _ in range(8)]
            await asyncio.to_thread(eventually, lambda: service.rows()[pid].in_flight >= 8, "all calls to run")
            os.kill(pid, signal.SIGKILL)
            ended = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 20)
            assert all(isinstance(error, MCPError) for error in ended), ended
            with pytest.raises(MCPError, match="Session not found"):
                await found.call_tool("notes", {})
        return [str(error) for error in ended]

    assert "Session not found" in asyncio.run(play())
    service.wait_ready()
    assert len(asyncio.run(notes(service, "after"))) == 6


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


def initialize(service: Service, named: str | None) -> tuple[int, str | None]:
    """An initialize on a new connection, with a session's id or without: status, and the id given out."""
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    headers |= {} if named is None else {"mcp-session-id": named}
    status, got, _ = service.connect().ask("POST", "/mcp", body=INITIALIZE, headers=headers)
    return status, got.get("mcp-session-id")


def test_initialize_with_a_stale_id(service: Service) -> None:
    """A client that begins anew with an old session's id gets a new session, whatever became of the old one."""
    status, first = initialize(service, None)
    assert status == 200
    assert first is not None
    owner = claims(service)[first[:8]]
    os.kill(next(pid for pid, row in service.rows().items() if row.incarnation == owner), signal.SIGKILL)
    eventually(lambda: first[:8] not in claims(service), "the session to be gone")
    service.wait_ready()
    for named in (first, "0123456789abcdef0123456789abcdef"):
        for _ in range(4):
            status, given = initialize(service, named)
            assert (status, given not in (None, named)) == (200, True)
            assert given is not None
            assert given[:8] in claims(service)
