"""The least an app can be, so that what is around it shows.

POST /echo, GET /echo    200 bytes            POST /up      reads all, 200 bytes
POST /seed_session       the worker's pid     POST /down    1 MiB
GET  /whoami             the worker's pid     POST /sse     1,000 events as fast as they go
WebSocket /echo          sends back           POST /slow-sse   the same, the loop turns between two
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from benchmarks.servers import relaying

relaying.settle()
EVENTS = 1000

_MEBIBYTE = bytes(range(256)) * 4096
_EVENT = b"data: " + b"x" * 40 + b"\n\n"
_REPLY = b"y" * 200
_PID = b"%d" % os.getpid()
_JSON = (b"content-type", b"application/json")
_BODIES = {"/down": _MEBIBYTE, "/whoami": _PID, "/seed_session": _PID}


def _settle() -> list[bytes]:
    """Make room in half-used arenas, and keep what is returned.

    Python gives an arena of 1 MiB back when it is empty. A process whose last arena is filled and emptied by each
    request pays two page faults and 13 us a request for it; whether one is in that state is chance.
    """
    blocks = [bytes(size) for size in range(16, 480, 16) for _ in range(2000)]
    del blocks[::2]
    return blocks


_settled = _settle()


async def app(scope: Any, receive: Any, send: Any) -> None:
    """The ASGI app."""
    kind = scope["type"]
    if kind == "http":
        await _http(scope["path"], receive, send)
    elif kind == "websocket":
        await _echo(receive, send)
    else:
        raise RuntimeError("no lifespan")


async def _http(path: str, receive: Any, send: Any) -> None:
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    if path in {"/sse", "/slow-sse"}:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for _ in range(EVENTS):
            await send({"type": "http.response.body", "body": _EVENT, "more_body": True})
            if path == "/slow-sse":
                await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return
    body = _BODIES.get(path, _REPLY)
    headers = [_JSON, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _echo(receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "bytes": message["bytes"]})
