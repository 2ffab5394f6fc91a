"""The session rule with real processes: the same table of cases, one `gym-supervise serve` for each."""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from conformance.cases import CASES, WINDOW, Case
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


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_case(case: Case, service: Callable[..., Service]) -> None:
    """Each line of the contract holds on a running service."""
    affinity: dict[str, Any] = {
        "preset": f"gym-{case.kind}",
        "session_close_retry_window_seconds": WINDOW,
        **case.affinity,
    }
    running = service(
        f"conformance.app:{case.kind}_factory",
        factory=True,
        workers=case.workers,
        placement="accepting",
        affinity=affinity,
    ).start()
    asyncio.run(Player(ProcessFleet(running), case).play())
    assert running.stop() == 0
