"""What the wire tests ask for: each route is a case of HTTP, told by an app that does no more than that."""

from __future__ import annotations

import asyncio
from typing import Any

Headers = list[tuple[bytes, bytes]]


async def respond(send: Any, status: int, headers: Headers, *pieces: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    for piece in pieces[:-1]:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": pieces[-1] if pieces else b""})


async def read(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError("the client has left")
        body += message["body"]
        more = message["more_body"]
    return body


async def app(scope: Any, receive: Any, send: Any) -> None:
    route = scope["path"].removeprefix(scope["root_path"])
    text: Headers = [(b"content-type", b"text/plain")]
    if route == "/length":
        await respond(send, 200, [*text, (b"content-length", b"5")], b"he", b"llo")
    elif route == "/chunked":
        await respond(send, 200, text, b"hello ", b"world")
    elif route.startswith("/status/"):
        status = int(route[8:])
        await respond(send, status, [(b"etag", b'"x"')] if status in {204, 304} else [*text, (b"content-length", b"0")])
    elif route == "/cookies":
        cookies = [value for name, value in scope["headers"] if name == b"cookie"]
        body = b"|".join(cookies)
        headers = [(b"set-cookie", b"a=1; Path=/"), (b"x-b", b"\xe9"), (b"set-cookie", b"b=2"), (b"set-cookie", b"a=3")]
        await respond(send, 200, [*headers, (b"content-length", b"%d" % len(body))], body)
    elif route == "/echo":
        body = await read(receive)
        await respond(send, 200, [(b"content-length", b"%d" % len(body))], body)
    elif route == "/refuse":
        await respond(send, 413, [(b"content-length", b"4")], b"nope")
    elif route == "/error":
        raise RuntimeError("kaputt")
    elif route == "/late-error":
        await send({"type": "http.response.start", "status": 200, "headers": text})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        await asyncio.sleep(0)
        raise RuntimeError("kaputt")
    elif route == "/short":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
    elif route == "/nothing":
        return
    elif route == "/events":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        while (await receive())["type"] != "http.disconnect":
            await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        scope["state"]["left"].set()
    else:
        keys = ("http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path", "headers")
        body = repr([scope[key] for key in keys]).encode()
        await respond(send, 200, [(b"content-length", b"%d" % len(body))], body)
