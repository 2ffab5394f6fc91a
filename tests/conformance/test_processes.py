"""The session rule with real processes: the same table of cases, against running services."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance.cases import CASES, WINDOW, Case, Kill
from conformance.player import Player
from whole.harness import Connection, Service, eventually


class ProcessFleet:
    """Workers of a running service, addressed by index through a kept connection to each."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.index_of = {pid: row.index for pid, row in service.rows().items()}
        self.connections: dict[int, Connection] = {
            self.index_of[pid]: connection for pid, connection in service.connections("/pid").items()
        }

    async def ask(
        self, on: int, method: str, path: str, *, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes, int | None]:
        """One request on the worker's connection."""
        client = self.connections[on].http
        named = {name.decode(): value.decode() for name, value in headers if name != b"content-length"}
        client.request(method, path, body=body or None, headers=named)
        reply: http.client.HTTPResponse = client.getresponse()
        content = reply.read()
        got = [(name.lower().encode(), value.encode()) for name, value in reply.getheaders()]
        ran = reply.getheader("x-ran")
        if reply.status == 500:
            # uvicorn closes the connection of an app that raised, after its reply
            self.connections = {self.index_of[pid]: c for pid, c in self.service.connections("/pid").items()}
        return reply.status, got, content, None if ran is None else self.index_of[int(ran)]

    async def kill(self, index: int) -> None:
        """SIGKILL, and wait until the table knows."""
        pid = next(pid for pid, number in self.index_of.items() if number == index)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: pid not in self.service.rows(), "the death to be seen")

    def holder(self, session: str) -> int | str | None:
        """Who holds a session: a worker's index, "gone" or None."""
        with self.service.segment() as segment:
            claim = segment.table.lookup(session.encode())
        if claim is None:
            return None
        return claim.index if claim.state == "live" else "gone"


def start(folder: Path, case: Case) -> Service:
    """A service for a case."""
    folder.mkdir()
    affinity: dict[str, Any] = {
        "preset": f"gym-{case.kind}",
        "session_close_retry_window_seconds": WINDOW,
        **case.affinity,
    }
    app = f"conformance.app:{case.kind}_factory"
    options = {"factory": True, "workers": case.workers, "placement": "accepting", "affinity": affinity}
    return Service(folder, app, **options).start()


@pytest.fixture(scope="module")
def fleets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Case], ProcessFleet]]:
    """A fleet for a case: shared by all cases with the same config, but for those that kill."""
    folder = tmp_path_factory.mktemp("conformance")
    shared: dict[str, ProcessFleet] = {}
    running: list[Service] = []

    def fleet_for(case: Case) -> ProcessFleet:
        kills = any(isinstance(step, Kill) for step in case.steps)
        key = case.name if kills else json.dumps([case.kind, case.workers, case.affinity])
        if key not in shared:
            running.append(start(folder / str(len(running)), case))
            shared[key] = ProcessFleet(running[-1])
        return shared[key]

    yield fleet_for
    left = []
    for service in running:
        assert service.stop() == 0, service.log.read_text()
        left += service.cleanup()
    assert left == []


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_case(case: Case, fleets: Callable[[Case], ProcessFleet]) -> None:
    """Each line of the contract holds on a running service."""
    asyncio.run(Player(fleets(case), case).play())
