"""The clients of the relay's benchmark: one that waits for each reply, and many that do so at once."""

from __future__ import annotations

import asyncio
import socket
import time

# One buffer for every reply: a new one of this size is mapped and unmapped each time, which costs half a request.
BUFFER = bytearray(1 << 18)


def one_client(port: int, request: bytes, count: int) -> list[float]:
    """Latencies of `count` requests in a row on one connection, seconds."""
    latencies = []
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            start = time.perf_counter()
            sock.sendall(request)
            read_reply(sock)
            latencies.append(time.perf_counter() - start)
    return latencies


def read_reply(sock: socket.socket) -> None:
    """Read one whole reply, of either length."""
    filled = 0
    end = -1
    while end < 0:
        got = sock.recv_into(memoryview(BUFFER)[filled:])
        assert got, "the server has closed the connection"
        filled += got
        end = BUFFER.find(b"\r\n\r\n", 0, filled)
    head = bytes(BUFFER[:end])
    assert head.startswith(b"HTTP/1.1 200"), head
    length = _length(head)
    if length is not None:
        missing = length - (filled - end - 4)
        while missing > 0:
            missing -= sock.recv_into(BUFFER)
        return
    tail = bytes(BUFFER[end + 4 : filled])[-5:]
    while tail != b"0\r\n\r\n":
        got = sock.recv_into(BUFFER)
        tail = (tail + BUFFER[max(0, got - 5) : got])[-5:]


def _length(head: bytes) -> int | None:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return None


class Client(asyncio.Protocol):
    """One of many clients: asks again as soon as the reply is there. Small replies with a content-length only."""

    def __init__(self, request: bytes, count: int, latencies: list[float], done: asyncio.Future[None]) -> None:
        self._request = request
        self._count = count
        self._latencies = latencies
        self._done = done
        self._data = b""
        self._start = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, rest = self._data.partition(b"\r\n\r\n")
        if not found or len(rest) < (_length(head) or 0):
            return
        assert head.startswith(b"HTTP/1.1 200"), self._data[:500]
        self._latencies.append(time.perf_counter() - self._start)
        self._data = b""
        self._count -= 1
        if self._count:
            self._ask()
        else:
            self._transport.close()
            self._done.set_result(None)

    def _ask(self) -> None:
        self._start = time.perf_counter()
        self._transport.write(self._request)


async def many_clients(port: int, request: bytes, clients: int, count: int) -> list[float]:
    """Latencies of `count` requests over `clients` connections, seconds."""
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    waits = []
    for _ in range(clients):
        done: asyncio.Future[None] = loop.create_future()
        waits.append(done)
        await loop.create_connection(lambda d=done: Client(request, count // clients, latencies, d), "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.gather(*waits)
    return latencies
