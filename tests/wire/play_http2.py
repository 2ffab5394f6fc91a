"""Plays a case of HTTP/2 on one connection: what a client says and sees, stream by stream."""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    InformationalResponseReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from wire.play import Seen, ask_beside, noted
from wire.script import Case, Data, Ended, Gate, Leave, Noted, Reset, Stream, Until


class Http2Client:
    """One connection; `seen` has what came, by stream."""

    def __init__(self, sock: socket.socket, port: int) -> None:
        self.port = port
        self.closed = False
        self.seen: defaultdict[int, list[Any]] = defaultdict(list)
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self._ids: dict[str, int] = {}
        self._read: defaultdict[int, int] = defaultdict(int)

    async def greet(self) -> int:
        """Begin; returns the pid of the worker that has accepted it."""
        self._h2.initiate_connection()
        await self._open("whoami", "GET", "/whoami", (), ends=True)
        await self._until(lambda: ("ended",) in self.seen[1])
        return int(self.body(1))

    def leave(self) -> None:
        """Close it."""
        self._sock.close()

    def body(self, stream: int) -> bytes:
        """What has come of a stream's body."""
        return b"".join(item[1] for item in self.seen[stream] if item[0] == "data")

    async def play(self, case: Case) -> Seen:
        """All steps; then what there is to be seen, in the order of the streams."""
        self.seen.clear()
        try:
            for number, step in enumerate(case.steps, 1):
                try:
                    await asyncio.wait_for(self._do(case, step), 15)
                except TimeoutError as error:
                    raise AssertionError(f"step {number}, {step}: nothing came after {dict(self.seen)}") from error
        finally:
            self._sock.close()
        said = [self.seen[self._ids[name]] for name in sorted(self._ids) if name != "whoami"]
        return Seen(repr(said).encode(), self.closed, await ask_beside(self.port, case, "/notes"))

    async def _do(self, case: Case, step: Any) -> None:
        match step:
            case Stream(name, method, path, headers, body, ends):
                named = (("x-session", "wire"), ("x-case", case.slug), *headers)
                await self._open(name, method, path, named, ends=ends and not body)
                if body:
                    await self._upload(name, body, ends=ends)
            case Data(name, body, ends):
                await self._upload(name, body, ends=ends)
            case Until(marker):
                await self._until(lambda: any(marker in self.body(stream) for stream in list(self.seen)))
            case Ended(name):
                stream = self._ids[name]
                await self._until(lambda: any(item[0] in ("ended", "reset") for item in self.seen[stream]))
            case Reset(name):
                self._h2.reset_stream(self._ids[name], 8)
                await self._flush()
            case Gate():
                await ask_beside(self.port, case, "/gate")
            case Noted(count):
                await noted(self.port, case, count)
            case Leave():
                self._sock.close()

    async def _open(self, name: str, method: str, path: str, headers: Any, *, ends: bool) -> None:
        stream = self._ids[name] = self._h2.get_next_available_stream_id()
        pseudo = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "h")]
        self._h2.send_headers(stream, [*pseudo, *headers], end_stream=ends)
        await self._flush()

    async def _upload(self, name: str, body: bytes, *, ends: bool) -> None:
        stream = self._ids[name]
        while body:
            size = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size, len(body))
            if not size:
                await self._more()
                continue
            self._h2.send_data(stream, body[:size])
            body = body[size:]
            await self._flush()
        if ends:
            self._h2.end_stream(stream)
            await self._flush()

    async def _flush(self) -> None:
        await self._loop.sock_sendall(self._sock, self._h2.data_to_send())

    async def _until(self, true: Any) -> None:
        while not true():
            assert not self.closed, f"the server has closed after {dict(self.seen)}"
            await self._more()

    async def _more(self) -> None:
        data = await self._loop.sock_recv(self._sock, 1 << 18)
        self.closed = not data
        for event in self._h2.receive_data(data):
            match event:
                case InformationalResponseReceived(stream_id=stream, headers=headers):
                    self.seen[stream].append(("informational", plain(headers)))
                case ResponseReceived(stream_id=stream, headers=headers):
                    self.seen[stream].append(("head", plain(headers)))
                case DataReceived(stream_id=stream, data=piece):
                    self._h2.acknowledge_received_data(event.flow_controlled_length, stream)
                    self._note_data(stream, piece)
                case TrailersReceived(stream_id=stream, headers=headers):
                    self.seen[stream].append(("trailers", plain(headers)))
                case StreamEnded(stream_id=stream):
                    self.seen[stream].append(("ended",))
                case StreamReset(stream_id=stream, error_code=code):
                    self.seen[stream].append(("reset", int(code)))
                case ConnectionTerminated(error_code=code):
                    self.seen[0].append(("goaway", code and int(code)))
        await self._flush()

    def _note_data(self, stream: int, piece: bytes) -> None:
        """Where a body is cut into frames depends on windows: pieces are joined."""
        seen = self.seen[stream]
        if seen and seen[-1][0] == "data":
            seen[-1] = ("data", seen[-1][1] + piece)
        elif piece:
            seen.append(("data", piece))


def plain(headers: Any) -> list[tuple[bytes, bytes]]:
    """Headers without the value of Date."""
    return [(bytes(name), b"..." if name == b"date" else bytes(value)) for name, value in headers]
