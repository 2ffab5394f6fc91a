"""An owner in a process of its own: python owner_process.py SOCKET. Prints "ready" when it listens.

The path of a request says where the process kills itself, as if it were SIGKILLed from outside.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import uvloop

from supervisor.relay.server import Ack, Open, RelayServer


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def admit(request: Open) -> Ack:
    if request.scope.path == "/admit":
        die()
    return Ack.OK


async def run(_request: Open, scope: Any, receive: Any, send: Any) -> None:
    path = scope["path"]
    if path == "/first-line":
        die()
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        if path == "/closed":
            await send({"type": "websocket.close", "code": 1000})
        await asyncio.sleep(0)
        die()
    message = await receive()
    while message["more_body"]:
        if path == "/upload":
            die()
        message = await receive()
    if path == "/wait":
        print("waits", flush=True)
        await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if path == "/head":
        await asyncio.sleep(0)
        die()
    await send({"type": "http.response.body", "body": b"x" * 1000, "more_body": True})
    if path == "/stream":
        await asyncio.sleep(0)
        print("streams", flush=True)
        await receive()
    if path == "/middle":
        await asyncio.sleep(0)
        die()
    await send({"type": "http.response.body", "body": b"end"})
    if path == "/after":
        die()


async def main() -> None:
    server = RelayServer(
        incarnation=7, uid=os.getuid(), state={}, admit=admit, run=run, abandon=lambda _: None, tasks=set()
    )
    await server.start(sys.argv[1])
    print("ready", flush=True)
    await asyncio.Event().wait()


uvloop.run(main())
