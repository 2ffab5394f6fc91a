"""A bare ASGI server whose sessions are WebSockets' as much as requests'; the id is in the cookie or the query `sid`.

GET /whoami           the pid
WEBSOCKET /echo       sends the pid and what it has counted for the session, then echoes; `close CODE REASON` closes,
                      `raise` raises; what it hears at the end is in GET /heard
WEBSOCKET /start      gives out an id in the accept's Set-Cookie (`give`: this one), then as /echo
WEBSOCKET /deny       a denial response, with the id `give` in its Set-Cookie
WEBSOCKET /refuse     closes before it accepts
"""

from __future__ import annotations

import json
import os
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

from whole.handing import change_handing

change_handing(os.environ.get("HANDING"))
COUNTS: dict[str, int] = {}
HEARD: list[Any] = []


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Serve."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    if scope["type"] == "http":
        body = json.dumps(HEARD).encode() if scope["path"] == "/heard" else str(os.getpid()).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})
        return
    await socket(scope, receive, send)


async def socket(scope: Any, receive: Any, send: Any) -> None:
    """One WebSocket."""
    query = {name: values[0] for name, values in parse_qs(scope["query_string"].decode()).items()}
    cookie = SimpleCookie(dict(scope["headers"]).get(b"cookie", b"").decode())
    session = query.get("sid") or (cookie["sid"].value if "sid" in cookie else "")
    headers: list[Any] = [(b"x-pid", b"%d" % os.getpid())]
    if scope["path"] in ("/start", "/deny"):
        session = query.get("give") or session or uuid4().hex
        headers.append((b"set-cookie", f"sid={session}; path=/".encode()))
    if scope["path"] == "/deny":
        await send({"type": "websocket.http.response.start", "status": 418, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": b"teapot"})
        return
    if scope["path"] == "/refuse":
        await send({"type": "websocket.close", "code": 4000})
        return
    await receive()
    offered = scope["subprotocols"]
    await send({"type": "websocket.accept", "headers": headers, "subprotocol": offered[-1] if offered else None})
    COUNTS[session] = COUNTS.get(session, 0) + 1
    await send({"type": "websocket.send", "text": json.dumps([os.getpid(), session, COUNTS[session]])})
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            HEARD.append([session, message["code"], message.get("reason")])
            return
        text = message.get("text") or ""
        if text.startswith("close "):
            _, code, reason = text.split(" ", 2)
            await send({"type": "websocket.close", "code": int(code), "reason": reason})
            return
        if text == "raise":
            raise RuntimeError("asked for")
        await send({"type": "websocket.send", "text": message.get("text"), "bytes": message.get("bytes")})
