"""Plays one case on one connection, and says all that could be seen of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import struct
from dataclasses import dataclass
from typing import Any

from wire.script import CASE, SESSION, Case, Eof, Gate, HalfClose, Leave, Noted, Send, Stalled, Step, Until

SECONDS = 15.0
STILL = 10
PAUSE_SECONDS = 0.01


@dataclass(frozen=True)
class Seen:
    """What a client got, and what the app noted."""

    data: bytes
    closed: bool
    notes: Any

    def __str__(self) -> str:
        return f"{self.data[:2000]!r}{' <EOF>' if self.closed else ''} notes={self.notes}"


class Client:
    """One connection, and the transcript of what came."""

    def __init__(self, sock: socket.socket, port: int, case: Case) -> None:
        self._sock = sock
        self._port = port
        self._case = case
        self._loop = asyncio.get_running_loop()
        self._data = bytearray()
        self._read = 0
        self._closed = False
        self._sending: asyncio.Future[None] | None = None

    async def play(self) -> Seen:
        """All steps; then what there is to be seen."""
        try:
            for number, step in enumerate(self._case.steps, 1):
                try:
                    await asyncio.wait_for(self._do(step), SECONDS)
                except TimeoutError as error:
                    so_far = bytes(self._data[-500:])
                    raise AssertionError(f"step {number}, {str(step)[:200]}: nothing came after {so_far!r}") from error
        finally:
            if self._sending is not None:
                self._sending.cancel()
            self._sock.close()
        notes = await ask_beside(self._port, self._case, "/notes")
        return Seen(normal(bytes(self._data), joined=self._case.joined), self._closed, notes)

    async def _do(self, step: Step) -> None:
        match step:
            case Send(data, at_once):
                sending = self._loop.sock_sendall(self._sock, data.replace(b"@CASE@", self._case.slug.encode()))
                if at_once:
                    self._sending = asyncio.ensure_future(sending)
                    self._sending.add_done_callback(lambda done: done.cancelled() or done.exception())
                else:
                    await sending
            case Until(marker):
                while (found := self._data.find(marker, self._read)) < 0:
                    await self._more()
                    assert not self._closed, f"the server has closed after {bytes(self._data[-500:])!r}"
                self._read = found + len(marker)
            case Eof():
                while not self._closed:
                    await self._more()
            case HalfClose():
                with contextlib.suppress(OSError):  # the server may have closed it
                    self._sock.shutdown(socket.SHUT_WR)
            case Leave(reset):
                if reset:
                    self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self._sock.close()
            case Gate():
                await ask_beside(self._port, self._case, "/gate")
            case Noted(count):
                await noted(self._port, self._case, count)
            case Stalled(below):
                await self._stalled(below)

    async def _more(self) -> None:
        try:
            data = await self._loop.sock_recv(self._sock, 1 << 18)
        except ConnectionResetError:  # a close while bytes are unread: whether there are any is a matter of time
            data = b""
        self._closed = not data
        self._data += data

    async def _stalled(self, below: int) -> None:
        last, same = -1, 0
        while same < STILL:
            await asyncio.sleep(PAUSE_SECONDS)
            count = await ask_beside(self._port, self._case, "/progress")
            same = same + 1 if count == last and (count or below == 0) else 0
            last = count
        assert last <= below, f"the app has come to {last}"


async def ask_beside(port: int, case: Case, path: str) -> Any:
    """One request to the app beside the case: what its JSON reply says, if anything."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET {path} HTTP/1.1\r\nHost: h\r\n{SESSION}\r\n{CASE}\r\nConnection: close\r\n\r\n"
    writer.write(head.replace("@CASE@", case.slug).encode())
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200"), answer
    return json.loads(answer.partition(b"\r\n\r\n")[2] or b"null")


async def noted(port: int, case: Case, count: int) -> None:
    """Wait until the app has noted so many things."""
    notes: list[Any] = []
    while len(notes) < count:
        await asyncio.sleep(PAUSE_SECONDS)
        notes = await ask_beside(port, case, "/notes")


def normal(data: bytes, *, joined: bool) -> bytes:
    """What is compared: without the value of Date."""
    data = re.sub(rb"(?i)(\r\ndate: )[^\r\n]+", rb"\1...", data)
    return join_chunks(data) if joined else data


def join_chunks(data: bytes) -> bytes:
    """The chunks of a chunked body joined."""
    found = re.search(rb"(?i)\r\ntransfer-encoding: chunked(\r\n.*?)??\r\n\r\n", data, re.DOTALL)
    if found is None:
        return data
    rest = data[found.end() :]
    chunks = b""
    while match := re.match(rb"([0-9a-f]+)\r\n", rest):
        size, start = int(match[1], 16), match.end()
        if not size:
            return data[: found.end()] + chunks + b"<end>" + rest[start:]
        chunks += rest[start : start + size]
        rest = rest[start + size + 2 :]
    return data[: found.end()] + chunks + rest
