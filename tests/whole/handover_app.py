"""A bare ASGI server that counts for each session, and says what a connection is to its worker.

The session is in the header `x-session`. Every reply is `PID SESSION COUNT CLIENT`, and `size` bytes after it.

ANY /whoami        without counting
ANY /descriptors   how many this process has, in place of the count
ANY /count?size=N  one more
ANY /early         the same, without waiting for the body
WEBSOCKET /echo    takes the first subprotocol, says `PID SESSION COUNT CLIENT`, then echoes
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

COUNTS: Counter[str] = Counter()


def said(scope: Any, count: int) -> bytes:
    """One reply."""
    session = dict(scope["headers"]).get(b"x-session", b"-").decode()
    client = scope["client"]
    return f"{os.getpid()} {session} {count} {client[1] if client else '-'}".encode()


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Serve."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    session = dict(scope["headers"]).get(b"x-session", b"-").decode()
    count = COUNTS[session]
    if scope["path"] in ("/count", "/early", "/echo"):
        COUNTS[session] = count = count + 1
    elif scope["path"] == "/descriptors":
        count = len(os.listdir("/proc/self/fd"))
    body = said(scope, count)
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept", "subprotocol": (scope["subprotocols"] or [None])[0]})
        await send({"type": "websocket.send", "bytes": body})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message.get("text"), "bytes": message.get("bytes")})
        return
    while scope["path"] != "/early" and (await receive()).get("more_body"):
        pass
    size = int(scope["query_string"].partition(b"size=")[2] or 0)
    body += b"." * size
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})
