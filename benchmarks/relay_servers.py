"""The processes that the relay's benchmark measures: a uvicorn server in front, and an owner behind a private socket.

    python -m benchmarks.relay_servers front APP OWNER_SOCKET    prints its port when it is ready
    python -m benchmarks.relay_servers owner APP OWNER_SOCKET    prints "ready"

Below /local the front runs the app itself, below /relayed it relays to the owner: the same process, the same
connection, so that a difference is the relay's.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import Annotated, Any

import uvicorn
import uvloop
from fastapi import Body, FastAPI, Request
from starlette.middleware.sessions import SessionMiddleware

from supervisor.relay.client import BodyReplay, Order, RelayClient, Taken
from supervisor.relay.server import Ack, Open, RelayServer

OWNER = 7
MEBIBYTE = bytes(range(256)) * 4096
EVENTS = 1000
EVENT = b"data: " + b"x" * 40 + b"\n\n"
REPLY = b"y" * 200
JSON = (b"content-type", b"application/json")


async def tiny(scope: Any, receive: Any, send: Any) -> None:
    """The least an app can be: /echo 200 bytes, /up reads all, /down 1 MiB, /sse and /slow-sse 1,000 events."""
    route = scope["path"].rpartition("/")[2]
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    if route in {"sse", "slow-sse"}:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for _ in range(EVENTS):
            await send({"type": "http.response.body", "body": EVENT, "more_body": True})
            if route == "slow-sse":
                await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return
    body = MEBIBYTE if route == "down" else REPLY
    headers = [JSON, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def fastapi_app() -> Any:
    """FastAPI with SessionMiddleware, as Gym's servers are built."""
    app = FastAPI()
    app.add_middleware(SessionMiddleware, secret_key="benchmark")

    @app.post("/{variant}/echo")
    async def echo(variant: str, request: Request, content: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
        request.session["id"] = variant
        return {"reply": "y" * 180, "keys": len(content)}

    return app


def settle() -> list[bytes]:
    """Make room in half-used arenas, and keep what is returned.

    Python gives an arena of 1 MiB back when it is empty. A process whose last arena is filled and emptied by each
    request pays two page faults and 13 us a request for it; whether one is in that state is chance.
    """
    blocks = [bytes(size) for size in range(16, 480, 16) for _ in range(2000)]
    del blocks[::2]
    return blocks


def app_of(name: str) -> Any:
    """The app called `name`."""
    return tiny if name == "tiny" else fastapi_app()


class Front:
    """Runs what is below /local, relays what is below /relayed."""

    def __init__(self, app: Any, path: str) -> None:
        self._app = app
        self._path = path
        self._client: RelayClient | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if not scope["path"].startswith("/relayed"):
            await self._app(scope, receive, send)
            return
        if self._client is None:
            self._client = RelayClient(
                path_of=lambda _: self._path, is_live=lambda _: True, pid_of=lambda _: None, uid=os.getuid()
            )
        outcome = await self._client.relay(Order(OWNER), scope, BodyReplay(receive), send)
        if type(outcome) is not Taken:
            raise RuntimeError(f"not relayed: {outcome}")


def front(app: str, path: str) -> None:
    """Serve on a free port."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.bind(("127.0.0.1", 0))
    sock.listen(1024)
    config = uvicorn.Config(
        Front(app_of(app), path), lifespan="off", loop="uvloop", http="httptools", access_log=False, log_level="warning"
    )
    print(sock.getsockname()[1], flush=True)
    uvicorn.Server(config).run(sockets=[sock])


async def owner(app: str, path: str) -> None:
    """Serve at `path` for ever."""
    serve = app_of(app)

    async def admit(_request: Open) -> Ack:
        return Ack.OK

    async def run(_request: Open, scope: Any, receive: Any, send: Any) -> None:
        await serve(scope, receive, send)

    server = RelayServer(
        incarnation=OWNER,
        uid=os.getuid(),
        state={},
        admit=admit,
        run=run,
        abandon=lambda _: None,
        tasks=set(),
    )
    await server.start(path)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    settled = settle()
    role, name, where = sys.argv[1:]
    if role == "front":
        front(name, where)
    else:
        uvloop.run(owner(name, where))
