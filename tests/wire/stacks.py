"""The ways to the app, on each stack of protocols that uvicorn has: a plain worker, a relay, and a connection that is
handed to the worker of its session.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import ne
from pathlib import Path
from typing import Any

from whole.handing import ALWAYS, NEVER
from whole.harness import REPO, Service
from wire.play import Client, Seen
from wire.script import SESSION, Case

AT_ONCE = 6
RECEIVE_BUFFER = 256 * 1024

COMMON: dict[str, Any] = {
    "ws_max_size": 2_000_000,
    "headers": [["x-default", "always"]],
    "access_log": False,
    "timeout_keep_alive": 30,
    "log_level": "critical",
}
AFFINITY = {"preset": "custom", "sources": [{"header": "x-session"}], "unknown": "claim"}


@dataclass(frozen=True)
class Stack:
    """uvicorn's options, and the packages that it needs."""

    name: str
    title: str
    options: dict[str, Any]
    needs: list[str] = field(default_factory=list)
    hands: bool = True  # its connections can be handed over

    @property
    def missing(self) -> list[str]:
        """Packages that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


STACKS = [
    Stack(
        "httptools",
        "httptools, websockets-sansio",
        {"http": "httptools", "ws": "websockets-sansio", "access_log": True, "log_level": "info"},
    ),
    Stack(
        "h11",
        "h11, websockets, root_path",
        {"http": "h11", "ws": "websockets", "root_path": "/root", "loop": "asyncio"},
    ),
    Stack(
        "zttp",
        "zttp with HTTP/2, wsproto",
        {"http": "zttp", "ws": "wsproto", "http2": True},
        ["zttp", "wsproto", "h2"],
        hands=False,
    ),
]


class Landings:
    """Connections that a certain worker has accepted, told by a request on each."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._spare: dict[int, list[socket.socket]] = {}
        self._turn = asyncio.Lock()

    async def on(self, wanted: Callable[[int], bool]) -> socket.socket:
        """One on a worker whose pid is `wanted`."""
        async with self._turn:
            while True:
                for pid, spare in self._spare.items():
                    if spare and wanted(pid):
                        return spare.pop()
                sock, pid = await self._connect()
                self._spare.setdefault(pid, []).append(sock)

    async def _connect(self) -> tuple[socket.socket, int]:
        sock = await self.connect()
        return sock, int(await self.ask(sock, "/whoami"))

    async def connect(self) -> socket.socket:
        """A connection, whoever accepts it."""
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        await loop.sock_connect(sock, ("127.0.0.1", self.port))
        return sock

    async def ask(self, sock: socket.socket, path: str, *headers: str) -> bytes:
        """A small request on it."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(sock, "\r\n".join((f"GET {path} HTTP/1.1", "Host: h", *headers, "", "")).encode())
        answer = b""
        while not (found := answer.partition(b"\r\n\r\n"))[1] or not found[2]:
            answer += await loop.sock_recv(sock, 65536)
        assert answer.startswith(b"HTTP/1.1 200"), answer
        return found[2]

    def close(self) -> None:
        """Close those that were not needed."""
        for spare in self._spare.values():
            for sock in spare:
                sock.close()


@asynccontextmanager
async def plain(options: dict[str, Any]) -> AsyncIterator[Landings]:
    """A plain uvicorn worker."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "wire.plain",
        json.dumps(options),
        cwd=REPO / "tests",
        env=os.environ | {"PYTHONPATH": str(REPO / "tests")},
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        landings = Landings(int(await process.stdout.readline()))
        yield landings
        landings.close()
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def supervised(folder: Path, options: dict[str, Any], handing: str) -> AsyncIterator[tuple[Landings, int]]:
    """A service of two workers, and the pid of the one that owns the session."""
    await asyncio.to_thread(folder.mkdir)
    service = Service(
        folder,
        "wire.app:app",
        workers=2,
        affinity=AFFINITY,
        uvicorn=options,
        log={"level": options["log_level"]},
        env={"HANDING": handing},
    )
    left: list[str] = []
    try:
        await asyncio.to_thread(service.start)
        landings = Landings(service.port)
        sock = await landings.on(lambda _: True)
        owner = int(await landings.ask(sock, "/whoami", SESSION))
        sock.close()
        yield landings, owner
        landings.close()
        status = await asyncio.to_thread(service.stop)
        assert status == 0, service.log.read_text()
    finally:
        left = await asyncio.to_thread(service.cleanup)
    assert left == []


async def play_one_way(landings: Landings, case: Case, wanted: Callable[[int], bool]) -> Seen:
    """Play a case on a connection to a worker that is wanted."""
    if not case.http2:
        return await Client(await landings.on(wanted), landings.port, case).play()
    from wire.play_http2 import Http2Client

    while True:
        client = Http2Client(await landings.connect(), landings.port)
        if wanted(await client.greet()):
            return await client.play(case)
        client.leave()


Result = dict[str, Seen] | Exception
"""What was seen each way; or what went wrong."""

DIRECTLY, RELAYED, MOVING, HANDED = "directly", "relayed", "moving", "handed over"
RELAYS = {RELAYED: NEVER, MOVING: ALWAYS, HANDED: ALWAYS}
BY_RELAY = {RELAYED, MOVING}
"""The first request is relayed; with MOVING its connection is handed over after it, with HANDED it was before."""


async def play(stack: Stack, cases: list[Case], folder: Path) -> dict[str, Result]:
    """Each case every way."""
    options = COMMON | stack.options
    results: dict[str, Result] = {}
    turns = asyncio.Semaphore(AT_ONCE)
    async with AsyncExitStack() as services:
        direct = await services.enter_async_context(plain(options))
        relays: dict[str, tuple[Landings, int]] = {}
        for way, handing in RELAYS.items():
            if stack.hands or handing == NEVER:
                made = supervised(folder / f"{stack.name}-{len(relays)}", options, handing)
                relays[way] = await services.enter_async_context(made)

        async def play_all_ways(case: Case) -> dict[str, Seen]:
            seen = {DIRECTLY: await play_one_way(direct, case, lambda _: True)}
            for way, (landings, owner) in relays.items():
                if way == HANDED and not case.websocket:  # which is handed over with its handshake
                    sock = await landings.on(partial(ne, owner))
                    await landings.ask(sock, "/whoami", SESSION)
                    seen[way] = await Client(sock, landings.port, case).play()
                else:
                    seen[way] = await play_one_way(landings, case, partial(ne, owner))
            return seen

        async def play_one(case: Case) -> None:
            async with turns:
                try:
                    results[case.slug] = await play_all_ways(case)
                except Exception as error:
                    results[case.slug] = error

        await asyncio.gather(*(play_one(case) for case in cases))
    return results
