"""Bytes on the wire: a real uvicorn that relays answers as one that runs the app itself."""

from __future__ import annotations

import asyncio
import contextlib
import re
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


def joined(answer: bytes) -> bytes:
    """The answer with the chunks of a chunked body joined: where they are cut is not said anywhere."""
    head, found, rest = answer.partition(b"transfer-encoding: chunked\r\n\r\n")
    chunks = b""
    while match := re.match(rb"([0-9a-f]+)\r\n", rest):
        size, start = int(match[1], 16), match.end()
        if not size:
            chunks += b"<end>"
        chunks += rest[start : start + size]
        rest = rest[start + size + 2 :]
    return head + found + chunks + rest


def request(line: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [line if line.endswith("HTTP/1.0") else f"{line} HTTP/1.1", "Host: h", *headers, "Connection: close"]
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body


CHUNKED_BODY = b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n"
CASES = {
    "head and body": request("GET /length"),
    "HEAD": request("HEAD /length"),
    "HEAD of a chunked reply": request("HEAD /chunked"),
    "chunked reply": request("GET /chunked"),
    "204": request("GET /status/204"),
    "304": request("GET /status/304"),
    "404": request("GET /status/404"),
    "cookies": request("GET /cookies", "Cookie: a=1; b=2", "Cookie: a=2", "Cookie: a=1; b=2"),
    "POST": request("POST /echo", "Content-Length: 5", body=b"hello"),
    "POST without a body": request("POST /echo", "Content-Length: 0"),
    "chunked upload": request("POST /echo", "Transfer-Encoding: chunked", body=CHUNKED_BODY),
    "large upload": request("POST /echo", "Content-Length: 3000000", body=bytes(range(250)) * 12000),
    "raw path": request("GET /a%2Fb/caf%C3%A9/%ff?x=%20&x=1"),
    "long header": request("GET /scope", "X-Long: " + "x" * 60000),
    "odd bytes": request("GET /scope", "X-Odd: \xe9\xff"),
    "HTTP/1.0": request("GET /length HTTP/1.0"),
    "Expect, read": request("POST /echo", "Expect: 100-continue", "Content-Length: 5", body=b"hello"),
    "Expect, in other letters": request("POST /echo", "Expect: 100-Continue", "Content-Length: 5", body=b"hello"),
    "Expect, refused": request("POST /refuse", "Expect: 100-continue", "Content-Length: 5"),
    "Expect, something else": request("POST /echo", "Expect: cake", "Content-Length: 5", body=b"hello"),
    "error": request("GET /error"),
    "error, late": request("GET /late-error"),
    "body too short": request("GET /short"),
    "no reply": request("GET /nothing"),
    "pipelined": b"GET /length HTTP/1.1\r\nHost: h\r\n\r\n"
    b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi" + request("GET /chunked"),
}


@pytest.mark.parametrize("data", CASES.values(), ids=CASES)
def test_same_bytes(run: Run, data: bytes) -> None:
    """A relayed request is answered byte for byte as one that runs where it came in, but for the Date."""

    async def test() -> None:
        async with Pair(app) as pair:
            async with serving(app) as direct, serving(relaying(pair.client)) as relayed:
                expected = await talk(direct, data)
                assert expected.startswith(b"HTTP/1.1 ")
                assert joined(await talk(relayed, data)) == joined(expected)

    run(test())


def test_root_path(run: Run) -> None:
    """The acceptor's root_path is the one that the owner's app sees."""

    async def test() -> None:
        data = request("GET /scope?x=1")
        async with Pair(app) as pair:
            async with (
                serving(app, root_path="/api") as direct,
                serving(relaying(pair.client), root_path="/api") as relayed,
            ):
                expected = await talk(direct, data)
                assert b"/api/scope" in expected
                assert await talk(relayed, data) == expected

    run(test())


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
