"""Bytes on the wire: a real uvicorn in front of the relay. What is equal to a direct connection is in tests/wire."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
import uvicorn.server
from relay.apps import app
from relay.conftest import Run
from relay.pair import OWNER, Pair, until
from relay.test_death import owner

from supervisor.relay.body import BodyReplay
from supervisor.relay.client import RelayClient
from supervisor.relay.outcomes import Order


@contextlib.asynccontextmanager
async def serving(app: Any, **options: Any) -> AsyncIterator[int]:
    """A server of uvicorn's own protocol around `app` on a free port, as a worker uses it."""
    config = uvicorn.Config(app, http="httptools", access_log=False, log_config=None, **options)
    config.load()
    loop = asyncio.get_running_loop()
    state = uvicorn.server.ServerState()
    state.default_headers = [(b"date", b"today"), (b"server", b"uvicorn")]
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.bind(("127.0.0.1", 0))
    listener = await loop.create_server(
        lambda: config.http_protocol_class(config=config, server_state=state, app_state={}, _loop=loop),  # type: ignore[call-arg]
        sock=sock,
    )
    try:
        yield sock.getsockname()[1]
    finally:
        listener.close()
        for connection in list(state.connections):
            connection.shutdown()
        await until(lambda: not state.connections and not state.tasks)


def relaying(client: RelayClient) -> Any:
    async def front(scope: Any, receive: Any, send: Any) -> None:
        await client.relay(Order(OWNER), scope, BodyReplay(receive), send)

    return front


async def talk(port: int, data: bytes) -> bytes:
    """What the server answers to `data` until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    answer = await reader.read()
    writer.close()
    return answer


def request(line: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [line if line.endswith("HTTP/1.0") else f"{line} HTTP/1.1", "Host: h", *headers, "Connection: close"]
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body


def test_late_error_never_ends_cleanly(run: Run) -> None:
    """A chunked reply whose app raised has no last chunk: the client sees that it is cut."""

    async def test() -> None:
        async with Pair(app) as pair:
            async with serving(relaying(pair.client)) as port:
                answer = await talk(port, request("GET /late-error"))
                assert b"half" in answer
                assert not answer.endswith(b"0\r\n\r\n")

    run(test())


@pytest.mark.parametrize("path", ["/head", "/middle"])
def test_owner_dies_in_its_reply(run: Run, path: str) -> None:
    """The owner's death in a reply breaks the client's connection off: a chunked body has no end."""

    async def test() -> None:
        async with owner() as made:
            async with serving(relaying(made.client)) as port:
                answer = await talk(port, f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())  # not asked to close
                assert b"transfer-encoding: chunked" in answer
                assert not answer.endswith(b"0\r\n\r\n")

    run(test())


@pytest.mark.parametrize("word", ["100-continue", "100-Continue"])
def test_continue_only_when_the_app_reads(run: Run, word: str) -> None:
    """`100 Continue` is not sent while the owner's app has not asked for the body, though it is admitted and runs."""
    go = asyncio.Event()
    continued = b"HTTP/1.1 100 Continue\r\n\r\n"

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        await go.wait()
        await app(scope, receive, send)

    async def test() -> None:
        async with Pair(waits) as pair:
            async with serving(relaying(pair.client)) as port:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request("POST /echo", f"Expect: {word}", "Content-Length: 5"))
                await until(lambda: pair.ran)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(reader.read(1), 0.05)
                go.set()
                assert await reader.readexactly(len(continued)) == continued
                writer.write(b"hello")
                assert (await reader.read()).endswith(b"\r\n\r\nhello")
                writer.close()

    run(test())


def test_client_closes(run: Run) -> None:
    """A client that closes its connection in the middle of a stream is seen by the owner's app."""

    async def test() -> None:
        left = asyncio.Event()
        async with Pair(app, state={"left": left}) as pair:
            async with serving(relaying(pair.client)) as port:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request("GET /events"))
                await reader.readuntil(b"data: 1")
                writer.close()
                async with asyncio.timeout(10):
                    await left.wait()

    run(test())


def test_truncated_chunked_upload(run: Run) -> None:
    """A chunked body that is cut is never taken for a whole one."""
    ended: list[Any] = []

    async def reads(scope: Any, receive: Any, send: Any) -> None:
        while True:
            ended.append(await receive())
            if ended[-1]["type"] == "http.disconnect":
                return

    async def test() -> None:
        async with Pair(reads) as pair:
            async with serving(relaying(pair.client)) as port:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request("POST /", "Transfer-Encoding: chunked", body=b"5\r\nhello\r\n5\r\nwo"))
                await until(lambda: ended)
                writer.close()
                await until(lambda: ended[-1]["type"] == "http.disconnect")
                assert all(message["more_body"] for message in ended[:-1])

    run(test())


@pytest.mark.parametrize("path", ["/error", "/late-error", "/nothing", "/short"])
def test_an_error_is_logged_once(run: Run, path: str, caplog: pytest.LogCaptureFixture) -> None:
    """By the worker that runs the app; the server in front makes up for the reply and says nothing."""

    async def test() -> None:
        async with Pair(app) as pair:
            async with serving(relaying(pair.client)) as relayed, serving(app) as direct:
                await talk(relayed, request(f"GET {path}"))
                assert len(caplog.records) == 1
                await talk(direct, request(f"GET {path}"))
                assert len(caplog.records) == 2

    run(test())
