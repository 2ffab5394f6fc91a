"""A running service as the fleet of a case: its workers, addressed by index through a kept connection to each."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from conformance.player import Headers, Note, Player, Reply
from conformance.script import WINDOW, Case, Kill, Leave, Mark
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from whole.harness import Connection, Service, eventually

SERVICES_AT_ONCE = 3


class ProcessFleet:
    """Workers of a running service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.index_of = {pid: row.index for pid, row in service.rows().items()}
        self.connections = self._connect()
        self._spare = self._connect()

    def _connect(self) -> dict[int, Connection]:
        return {self.index_of[pid]: connection for pid, connection in self.service.connections("/pid").items()}

    def _replace(self, on: int) -> None:
        """The server has closed a connection. Finding another one to a certain worker takes a while: one is kept."""
        if on not in self._spare:
            self._spare = self._connect()
        self.connections[on] = self._spare.pop(on)

    async def ask(self, on: int, method: str, path: str, *, headers: Headers, body: bytes) -> Reply:
        """One request on the worker's connection."""
        return await asyncio.to_thread(self._ask, on, method, path, headers, body)

    def _ask(self, on: int, method: str, path: str, headers: Headers, body: bytes) -> Reply:
        if method == "WEBSOCKET":
            return self._open_websocket(on, path, headers)
        client = self.connections[on].http
        client.putrequest(method, path, skip_accept_encoding=True)
        for name, value in headers:
            client.putheader(name, value)
        client.endheaders(body or None)
        reply = client.getresponse()
        cut = False
        try:
            content = reply.read()
        except http.client.IncompleteRead as error:
            content, cut = error.partial, True
        got = [(name.lower().encode(), value.encode()) for name, value in reply.getheaders()]
        ran = reply.getheader("x-ran")
        if cut or reply.will_close or reply.status == 500:
            self._replace(on)  # the server closes the connection of an app that raised, after its reply
        return reply.status, got, content, None if ran is None else self.index_of[int(ran)]

    def _open_websocket(self, on: int, path: str, headers: Headers) -> Reply:
        """The connection is used up."""
        sock = self.connections[on].http.sock
        sent = [(name.decode(), value.decode()) for name, value in headers]
        try:
            with connect(f"ws://t{path}", sock=sock, additional_headers=sent) as socket:
                content = str(socket.recv()).encode()
            reply = socket.response
        except InvalidStatus as refused:
            reply, content = refused.response, bytes(refused.response.body or b"")
        finally:
            self._replace(on)
        assert reply is not None
        got = [(name.lower().encode(), value.encode()) for name, value in reply.headers.raw_items()]
        ran = reply.headers.get("x-ran")
        return reply.status_code, got, content, None if ran is None else self.index_of[int(ran)]

    async def leave(self, on: int, method: str, path: str, *, headers: Headers, body: bytes, in_body: bool) -> None:
        """A client that leaves in the middle of its body, or before the reply."""
        sock = self.connections[on].http.sock
        assert sock is not None
        head = f"{method} {path} HTTP/1.1\r\nHost: t\r\n".encode()
        head += b"".join(name + b": " + value + b"\r\n" for name, value in headers) + b"\r\n"
        sock.sendall(head + (body[: len(body) // 2] if in_body else body))
        await asyncio.to_thread(eventually, self._busy, "the request to be in flight")
        sock.close()
        self._replace(on)
        await asyncio.to_thread(eventually, lambda: not self._busy(), "the request to be over")

    def _busy(self) -> bool:
        return any(row.in_flight for row in self.service.rows().values())

    async def kill(self, index: int) -> None:
        """SIGKILL, and wait until the table knows."""
        pid = next(pid for pid, number in self.index_of.items() if number == index)
        os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(eventually, lambda: pid not in self.service.rows(), "the death to be seen")

    def holder(self, session: str) -> int | str | None:
        """Who holds a session: a worker's index, "gone" or None."""
        with self.service.segment() as segment:
            claim = segment.table.lookup(session.encode())
        if claim is None:
            return None
        return claim.index if claim.state == "live" else "gone"

    def live(self) -> set[str]:
        """The digests of all live claims."""
        with self.service.segment() as segment:
            return {digest for digest, claim in segment.table.dump() if claim.state == "live"}

    def open_sessions(self, index: int) -> int:
        """How many a worker shows."""
        return next(int(row.sessions) for row in self.service.rows().values() if row.index == index)

    def private_sockets(self) -> int:
        """How many there are."""
        return sum(path.is_socket() and path.name != "control.sock" for path in self.service.runtime_dir.iterdir())


class ProcessFleets:
    """Plays cases against services: one for all cases with the same config, but for those that kill or count."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[Service] = []
        self._at_once = asyncio.Semaphore(SERVICES_AT_ONCE)

    async def play(self, cases: Iterable[Case], note: Note) -> None:
        """Play them all, and note what became of each."""
        groups: dict[str, list[Case]] = {}
        for case in cases:
            groups.setdefault(self._service_of(case), []).append(case)
        await asyncio.gather(*(self._play_group(group, note) for group in groups.values()))

    def _service_of(self, case: Case) -> str:
        """A name for the service that a case needs."""
        kills = any(isinstance(step, Kill) for step in case.steps)
        if kills or case.max_sessions < 100 or case.placement != "accepting":
            return case.name
        return json.dumps([case.kind, case.workers, case.affinity, case.root_path])

    async def _play_group(self, group: list[Case], note: Note) -> None:
        async with self._at_once:
            service = make(self.folder / str(len(self.running)), group[0])
            self.running.append(service)
            await asyncio.to_thread(service.start)
            together = [case for case in group if not any(isinstance(step, Mark | Leave) for step in case.steps)]
            await asyncio.gather(*(self._play_one(service, case, note) for case in together))
            for case in group:
                if case not in together:  # they look at what else there is
                    await self._play_one(service, case, note)

    async def _play_one(self, service: Service, case: Case, note: Note) -> None:
        fleet = await asyncio.to_thread(ProcessFleet, service)
        try:
            await Player(fleet, case).play()
        except Exception as error:
            note(case, error)
        else:
            note(case, None)

    def stop(self) -> list[str]:
        """Stop them all; what is left of them."""
        left = []
        started = [service for service in self.running if service.process is not None]
        for service in started:
            service.signal(signal.SIGTERM)
        for service in started:
            status = service.wait()
            left += service.cleanup()
            if status:
                left.append(f"exit status {status}: {service.log.read_text()}")
        return left


def make(folder: Path, case: Case) -> Service:
    """A service for a case, to be started."""
    folder.mkdir(parents=True)
    affinity: dict[str, Any] = {
        "preset": f"gym-{case.kind}",
        "session_close_retry_window_seconds": WINDOW,
        **case.affinity,
    }
    options: dict[str, Any] = {
        "factory": True,
        "workers": case.workers,
        "placement": case.placement,
        "affinity": affinity,
        "claims": {"max_sessions": case.max_sessions},
    }
    if case.root_path:
        options["uvicorn"] = {"root_path": case.root_path}
    return Service(folder, f"conformance.app:{case.kind}_factory", **options)
