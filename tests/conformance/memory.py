"""Several routers in one process, on one real table, with real private sockets between them."""

from __future__ import annotations

import asyncio
import copy
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from conformance import app as gym
from conformance.player import Headers, Note, Player, Reply
from conformance.script import WINDOW, Case

from server_adapters import registry
from shmclaims import RowState, Segment, check
from shmclaims.layout import HEADER
from supervisor.config import Config, ServerConfig
from supervisor.processes.worker_spec import WorkerSpec
from supervisor.routing.assembly import Routing, assemble

AT_ONCE = 16
LEAVE_SECONDS = 0.1


class Worker:
    """One router, its app instance and its row."""

    def __init__(self, fleet: MemoryFleet, index: int, *, workers: int) -> None:
        segment = fleet.segment
        self.index = index
        self.incarnation = segment.ring.register(index, now=time.time())
        self.app = gym.make(fleet.kind, str(index))
        self.spec = WorkerSpec(
            config=fleet.config,
            server=fleet.server,
            name="app",
            index=index,
            incarnation=self.incarnation,
            segment=fleet.segment_of(self),
            listeners=[],
            link=None,  # type: ignore[arg-type]  # routing never touches it
            runtime_dir=str(fleet.folder),
            workers=workers,
        )
        adapter = registry.build(
            fleet.server.affinity.options() if fleet.server.affinity else {}, self.app, server="app"
        )
        self.routing: Routing = assemble(self.spec, self.app, adapter)
        self.tasks: set[Any] = set()

    async def start(self) -> None:
        """Listen, and be ready."""
        await self.routing.open({}, self.tasks)
        self.spec.segment.ring.set_pid(self.incarnation, os.getpid())
        self.spec.segment.ring.set_state(self.incarnation, RowState.READY)
        self.sweeper = asyncio.get_running_loop().create_task(self.routing.sweep())

    async def stop(self) -> None:
        """Close everything."""
        self.sweeper.cancel()
        await self.routing.close()


class MemoryFleet:
    """Workers of one server in one event loop."""

    def __init__(self, case: Case, folder: Path, *, affinity: dict[str, Any]) -> None:
        self.kind = case.kind
        self.folder = folder
        self.root_path = case.root_path
        preset = "gym-resources" if case.kind == "resources" else "gym-agent"
        self.server = ServerConfig.model_validate(
            {
                "app": "conformance.app:none",
                "workers": case.workers,
                "placement": case.placement,
                "affinity": {"preset": preset, **affinity},
                "claims": {"max_sessions": case.max_sessions},
            }
        )
        self.config = Config.model_validate(
            {"name": "test", "runtime_dir": str(folder), "servers": {"app": self.server}}
        )
        self.segment = Segment.create({"server": "app"}, max_sessions=self.server.claims.max_sessions)
        self.workers: list[Worker] = []

    def segment_of(self, worker: Worker) -> Segment:
        """The segment as one of several workers in a process needs it: the same memory, with a table of its own."""
        own = copy.copy(self.segment)
        own._parts(HEADER.unpack_from(own._memory, 0)[7])
        own.table.bind(worker.incarnation, worker.index)
        return own

    async def __aenter__(self) -> Self:
        for index in range(self.server.workers):
            await self.add(index, workers=self.server.workers)
        return self

    async def add(self, index: int, *, workers: int) -> Worker:
        """Start a worker, one of so many."""
        worker = Worker(self, index, workers=workers)
        self.workers.append(worker)
        await worker.start()
        return worker

    async def __aexit__(self, *_: object) -> None:
        for worker in self.workers:
            await worker.stop()
        try:
            assert check(self.segment) == []
        finally:
            self.segment.unlink()
            self.segment.close()

    async def kill(self, index: int) -> None:
        """A worker dies, as the others see it."""
        worker = self.workers[index]
        await worker.stop()
        self.segment.ring.mark_dead(worker.incarnation, now=time.time())

    def holder(self, session: str) -> int | str | None:
        """Who holds a session: a worker's index, "gone" or None."""
        claim = self.segment.table.lookup(session.encode())
        if claim is None:
            return None
        return claim.index if claim.state == "live" else "gone"

    def live(self) -> set[str]:
        """The digests of all live claims."""
        return {digest for digest, claim in self.segment.table.dump() if claim.state == "live"}

    def open_sessions(self, index: int) -> int:
        """How many a worker shows."""
        row = self.segment.ring.row(self.workers[index].incarnation)
        assert row is not None
        return row.sessions

    def private_sockets(self) -> int:
        """How many there are."""
        return sum(path.is_socket() for path in self.folder.iterdir())

    async def ask(self, on: int, method: str, path: str, *, headers: Headers, body: bytes) -> Reply:
        """One request to a worker: status, headers, body, and the worker whose app ran it."""
        if method == "WEBSOCKET":
            messages = await self.open_websocket(on, path, headers)
        else:
            pieces = [{"type": "http.request", "body": body, "more_body": False}]
            messages = await self.exchange(on, method, path, headers, pieces, leaves=False)
        start = messages[0]
        status = start.get("status", 101 if start["type"] == "websocket.accept" else 403)
        got = [(bytes(name).lower(), bytes(value)) for name, value in start.get("headers", ())]
        content = b"".join(message.get("body") or message.get("text", "").encode() for message in messages[1:])
        ran = dict(got).get(b"x-ran")
        return status, got, content, None if ran is None else int(ran)

    async def leave(self, on: int, method: str, path: str, *, headers: Headers, body: bytes, in_body: bool) -> None:
        """A client that leaves in the middle of its body, or before the reply."""
        sent = body[: len(body) // 2] if in_body else body
        pieces = [{"type": "http.request", "body": sent, "more_body": in_body}]
        await self.exchange(on, method, path, headers, pieces, leaves=True)

    async def open_websocket(self, on: int, path: str, headers: Headers) -> list[dict[str, Any]]:
        """Run one WebSocket, whose client leaves when the app has closed it; what the app sent."""
        messages: list[dict[str, Any]] = []
        closed = asyncio.Event()
        opening = [{"type": "websocket.connect"}]

        async def receive() -> dict[str, Any]:
            if opening:
                return opening.pop()
            await closed.wait()
            return {"type": "websocket.disconnect", "code": 1000}

        async def send(message: dict[str, Any]) -> None:
            messages.append(message)
            if message["type"] == "websocket.close":
                closed.set()

        path, _, query = path.partition("?")
        scope = self.scope(path, headers) | {
            "type": "websocket",
            "scheme": "ws",
            "query_string": query.encode(),
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
        }
        await self.workers[on].routing.router(scope, receive, send)
        return messages

    def scope(self, path: str, headers: Headers) -> dict[str, Any]:
        """What a server makes of a request's head."""
        full = self.root_path + path
        return {
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "path": full,
            "raw_path": full.encode(),
            "query_string": b"",
            "root_path": self.root_path,
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
            "state": {},
        }

    async def exchange(
        self, on: int, method: str, path: str, headers: Headers, pieces: list[dict[str, Any]], *, leaves: bool
    ) -> list[dict[str, Any]]:
        """Run one request through a worker's router; what it sent. A client that leaves stays until the app runs."""
        messages: list[dict[str, Any]] = []
        left = asyncio.Event()
        if leaves:
            asyncio.get_running_loop().call_later(LEAVE_SECONDS, left.set)

        async def receive() -> dict[str, Any]:
            if pieces:
                return pieces.pop(0)
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            messages.append(message)

        scope = self.scope(path, headers) | {"type": "http", "method": method, "scheme": "http"}
        try:
            await self.workers[on].routing.router(scope, receive, send)
        except RuntimeError as error:
            # A local app's error reaches the server, which logs it; the reply was made by Starlette before that.
            assert str(error) == "asked for", error
        return messages


async def play_all(cases: Iterable[Case], note: Note) -> None:
    """Play cases at once, each on a fleet of its own, and note what became of each."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def play_one(case: Case) -> None:
        affinity = {"session_close_retry_window_seconds": WINDOW, **case.affinity}
        async with turns:
            try:
                with tempfile.TemporaryDirectory() as folder:
                    async with MemoryFleet(case, Path(folder), affinity=affinity) as fleet:
                        await Player(fleet, case).play()
            except Exception as error:
                note(case, error)
            else:
                note(case, None)

    await asyncio.gather(*(play_one(case) for case in cases))
