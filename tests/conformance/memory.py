"""Several routers in one process, on one real table, with real private sockets between them."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import time
from pathlib import Path
from typing import Any, Self

from conformance import app as gym

from server_adapters import registry
from shmclaims import RowState, Segment, check
from shmclaims.layout import HEADER
from supervisor.config import Config, ServerConfig
from supervisor.routing.assembly import Routing, assemble
from supervisor.worker_spec import WorkerSpec


class Worker:
    """One router, its app instance and its row."""

    def __init__(self, fleet: MemoryFleet, index: int) -> None:
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
            workers=fleet.server.workers,
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

    def __init__(self, kind: str, folder: Path, *, workers: int, affinity: dict[str, Any], placement: str) -> None:
        self.kind = kind
        self.folder = folder
        preset = "gym-resources" if kind == "resources" else "gym-agent"
        self.server = ServerConfig.model_validate(
            {
                "app": "conformance.app:none",
                "workers": workers,
                "placement": placement,
                "affinity": {"preset": preset, **affinity},
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
            worker = Worker(self, index)
            self.workers.append(worker)
            await worker.start()
        return self

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

    async def ask(
        self, on: int, method: str, path: str, *, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes, int | None]:
        """One request to a worker: status, headers, body, and the worker whose app ran it."""
        sent = False
        messages: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                await asyncio.Event().wait()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            messages.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
            "state": {},
        }
        try:
            await self.workers[on].routing.router(scope, receive, send)
        except RuntimeError as error:
            # A local app's error reaches the server, which logs it; the reply was made by Starlette before that.
            assert str(error) == "asked for", error
        start = messages[0]
        got = [(bytes(name).lower(), bytes(value)) for name, value in start["headers"]]
        content = b"".join(message.get("body", b"") for message in messages[1:])
        ran = dict(got).get(b"x-ran")
        return start["status"], got, content, None if ran is None else int(ran)


def as_json(body: bytes) -> Any:
    """The body as JSON, or {}."""
    try:
        return json.loads(body)
    except ValueError:
        return {}
