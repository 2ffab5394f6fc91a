"""An acceptor and an owner on one loop, with real Unix sockets between them, and a client to play with."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from supervisor.relay.body import BodyReplay
from supervisor.relay.client import RelayClient
from supervisor.relay.outcomes import Order, Outcome
from supervisor.relay.server import Ack, Open, RelayServer

OWNER = 7
Message = dict[str, Any]
App = Callable[[Any, Any, Any], Awaitable[None]]


async def until(true: Callable[[], Any], seconds: float = 10.0) -> None:
    """Wait until `true()`; fail after `seconds`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not true():
        assert loop.time() < deadline, "the condition did not come true"
        await asyncio.sleep(0.001)


async def settled(value: Callable[[], int]) -> int:
    """The value once it has stopped to change."""
    last, same = value(), 0
    while same < 30:
        await asyncio.sleep(0.005)
        same = same + 1 if value() == last else 0
        last = value()
    return last


class Client:
    """An HTTP client as its server shows it to an app: `receive` and `send`.

    chunks  the body; the last one ends it unless `more`
    gate    send waits while it is not set: a client that has stalled
    """

    def __init__(self, *chunks: bytes, more: bool = False) -> None:
        self.chunks = list(chunks) or ([] if more else [b""])
        self.more = more
        self.left = False
        self.messages: list[Message] = []
        self.received = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._changed = asyncio.Event()

    def upload(self, *chunks: bytes, more: bool = False) -> None:
        """Go on with the body."""
        self.chunks += chunks
        self.more = more
        self._changed.set()

    def leave(self) -> None:
        """Go away."""
        self.left = True
        self._changed.set()

    async def receive(self) -> Message:
        while not self.left:
            if self.chunks:
                self.received += 1
                data = self.chunks.pop(0)
                return {"type": "http.request", "body": data, "more_body": bool(self.chunks) or self.more}
            self._changed.clear()
            await self._changed.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self.gate.wait()
        self.messages.append(message)

    @property
    def started(self) -> bool:
        return bool(self.messages)

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [tuple(header) for header in self.messages[0]["headers"]]

    @property
    def pieces(self) -> list[bytes]:
        return [m["body"] for m in self.messages if m["type"] == "http.response.body"]

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def complete(self) -> bool:
        """The last message of a body has come."""
        return any(m["type"] == "http.response.body" and not m.get("more_body", False) for m in self.messages)


def scope_of(method: str = "GET", path: str = "/", headers: Iterable[tuple[bytes, bytes]] = (), **more: Any) -> Message:
    """An http scope as uvicorn makes it."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "server": ("127.0.0.1", 8000),
        "client": ("10.1.2.3", 50123),
        "scheme": "http",
        "method": method,
        "root_path": "",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": list(headers),
        "state": {"of": "the acceptor"},
    } | more


class Pair:
    """Enter it. `admitted`, `ran` and `abandoned` tell what the owner's side was asked for."""

    def __init__(
        self,
        app: App,
        *,
        admit: Callable[[Open], Awaitable[Ack]] | None = None,
        state: dict[str, Any] | None = None,
        live: Callable[[int], bool] = lambda _: True,
        pid: int | None = None,
        client_uid: int | None = None,
        server_uid: int | None = None,
        reach_seconds: float = 2.0,
    ) -> None:
        self._app = app
        self._admit = admit
        self._state = {"of": "the owner"} if state is None else state
        self._live = live
        self._pid = pid
        self._client_uid = os.getuid() if client_uid is None else client_uid
        self._server_uid = os.getuid() if server_uid is None else server_uid
        self._reach_seconds = reach_seconds
        self.admitted: list[Open] = []
        self.ran: list[Open] = []
        self.abandoned: list[Open] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self.folder = tempfile.mkdtemp(prefix=f"gsv-relay-{os.getpid()}-")
        self.server = self.make_server(OWNER)
        await self.server.start(self.path_of(OWNER))
        self.client = RelayClient(
            path_of=self.path_of,
            is_live=self._live,
            pid_of=lambda _: self._pid,
            uid=self._client_uid,
            reach_seconds=self._reach_seconds,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.close()
        self.server.close()
        try:
            if kind is None:
                await until(lambda: not self.server.channels)
                await until(lambda: not self.tasks)
                assert self.server.in_flight == 0
        finally:
            shutil.rmtree(self.folder)

    def path_of(self, incarnation: int) -> str:
        return os.path.join(self.folder, f"{incarnation}.sock")

    def make_server(self, incarnation: int) -> RelayServer:
        return RelayServer(
            incarnation=incarnation,
            uid=self._server_uid,
            state=self._state,
            admit=self.admit,
            run=self.run,
            abandon=self.abandoned.append,
            tasks=self.tasks,
        )

    async def admit(self, request: Open) -> Ack:
        self.admitted.append(request)
        return Ack.OK if self._admit is None else await self._admit(request)

    async def run(self, request: Open, scope: Any, receive: Any, send: Any) -> None:
        self.ran.append(request)
        await self._app(scope, receive, send)

    async def relay(self, client: Client, scope: Message | None = None, **order: Any) -> Outcome:
        """One request of `client`."""
        order.setdefault("owner", OWNER)
        scope = scope_of("POST") if scope is None else scope
        return await self.client.relay(Order(**order), scope, BodyReplay(client.receive), client.send)

    async def ask(
        self,
        method: str = "GET",
        path: str = "/",
        body: bytes = b"",
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> tuple[Outcome, Client]:
        """One small request of a client that waits for its reply."""
        client = Client(body)
        return await self.relay(client, scope_of(method, path, headers)), client


def reply(status: int = 200, body: bytes = b"ok", headers: Sequence[tuple[bytes, bytes]] = ()) -> App:
    """An app that reads nothing and replies so."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


async def read_all(receive: Any) -> bytes:
    """The whole body; fails if the client leaves before its end."""
    pieces: list[bytes] = []
    while True:
        message = await receive()
        assert message["type"] == "http.request"
        pieces.append(message["body"])
        if not message["more_body"]:
            return b"".join(pieces)


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """An app that sends back what it was sent."""
    body = await read_all(receive)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


def nobody_listens(path: str) -> None:
    """A socket file that a process left."""
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(path)
    sock.close()
