"""HTTP/1.1 and WebSocket clients that are little more than a socket, so that little of what is measured is theirs."""

from __future__ import annotations

import base64
import os
import select
import socket
import time
from collections.abc import Sequence

from benchmarks.harness.rows import Unmeasurable

# One buffer for every reply: a new one of this size is mapped and unmapped each time, which costs half a request.
BUFFER = bytearray(1 << 18)
TIMEOUT_SECONDS = 20.0
OPCODE_BINARY = 0x82


def connect(port: int) -> socket.socket:
    """A new connection."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def request_bytes(
    method: str, path: str, *, cookie: str | None = None, body: bytes = b"", more: Sequence[str] = ()
) -> bytes:
    """A whole request, with the headers that Gym's client sends."""
    lines = [
        f"{method} {path} HTTP/1.1",
        "host: 127.0.0.1:8000",
        "user-agent: benchmark/1.0",
        "accept: */*",
        "accept-encoding: gzip, deflate",
    ]
    if body:
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
    if cookie is not None:
        lines.append(f"cookie: {cookie}")
    return "\r\n".join([*lines, *more, "", ""]).encode() + body


def ask(sock: socket.socket, request: bytes) -> tuple[bytes, bytes]:
    """One request with a small reply: its head and its body."""
    sock.sendall(request)
    data = b""
    while True:
        got = sock.recv(65536)
        if not got:
            raise Unmeasurable(f"the server has closed the connection after {data[:200]!r}")
        data += got
        head, found, body = data.partition(b"\r\n\r\n")
        if found and len(body) >= (_length(head) or 0):
            if not head.startswith(b"HTTP/1.1 200"):
                raise Unmeasurable(f"refused: {head.splitlines()[0]!r} {body[:200]!r}")
            return head, body


def one_client(sock: socket.socket, request: bytes, count: int) -> list[float]:
    """Latencies of `count` requests in a row, seconds."""
    latencies = []
    for _ in range(count):
        start = time.perf_counter()
        sock.sendall(request)
        _read_reply(sock)
        latencies.append(time.perf_counter() - start)
    return latencies


def many_clients(socks: Sequence[socket.socket], requests: Sequence[bytes], count: int) -> list[float]:
    """Latencies of `count` requests with small replies, seconds: each connection asks again when its reply is there."""
    latencies: list[float] = []
    poll = select.epoll()
    by_number = {sock.fileno(): (sock, request) for sock, request in zip(socks, requests, strict=True)}
    begun = {}
    for number, (sock, request) in by_number.items():
        poll.register(number, select.EPOLLIN)
        sock.sendall(request)
        begun[number] = time.perf_counter()
    left = count - len(by_number)
    with poll:
        while len(latencies) < count:
            for number, _ in poll.poll():
                sock, request = by_number[number]
                data = sock.recv(65536)
                head, _, body = data.partition(b"\r\n\r\n")
                while len(body) < (_length(head) or 1):
                    more = sock.recv(65536)
                    if not more:
                        raise Unmeasurable("the server has closed a connection")
                    head, _, body = (data := data + more).partition(b"\r\n\r\n")
                if not data.startswith(b"HTTP/1.1 200"):
                    raise Unmeasurable(f"refused: {data[:200]!r}")
                now = time.perf_counter()
                latencies.append(now - begun[number])
                if left > 0:
                    left -= 1
                    sock.sendall(request)
                    begun[number] = now
    return latencies


def _read_reply(sock: socket.socket) -> None:
    """Read one whole reply, of either length."""
    filled = 0
    end = -1
    while end < 0:
        got = sock.recv_into(memoryview(BUFFER)[filled:])
        if not got:
            raise Unmeasurable("the server has closed the connection")
        filled += got
        end = BUFFER.find(b"\r\n\r\n", 0, filled)
    head = bytes(BUFFER[:end])
    if not head.startswith(b"HTTP/1.1 200"):
        raise Unmeasurable(f"refused: {bytes(BUFFER[:filled])!r}")
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


class EchoSocket:
    """A WebSocket whose messages come back: small binary ones. `sock` may have had requests before."""

    def __init__(self, sock: socket.socket, path: str, cookie: str) -> None:
        self._sock = sock
        key = base64.b64encode(os.urandom(16)).decode()
        more = ["connection: Upgrade", "upgrade: websocket", "sec-websocket-version: 13", f"sec-websocket-key: {key}"]
        self._sock.sendall(request_bytes("GET", path, cookie=cookie, more=more))
        head = b""
        while b"\r\n\r\n" not in head:
            got = self._sock.recv(4096)
            if not got:
                raise Unmeasurable(f"the WebSocket was closed: {head[:200]!r}")
            head += got
        if not head.startswith(b"HTTP/1.1 101"):
            raise Unmeasurable(f"the WebSocket was refused: {head[:300]!r}")

    def one_client(self, size: int, count: int) -> list[float]:
        """Latencies of `count` messages of `size` bytes, at most 125, seconds."""
        payload, mask = os.urandom(size), os.urandom(4)
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
        frame = bytes((OPCODE_BINARY, 0x80 | size)) + mask + masked
        expected = bytes((OPCODE_BINARY, size)) + payload
        latencies = []
        for _ in range(count):
            start = time.perf_counter()
            self._sock.sendall(frame)
            data = self._sock.recv(4096)
            while len(data) < len(expected):
                got = self._sock.recv(4096)
                if not got:
                    raise Unmeasurable("the WebSocket has been closed")
                data += got
            latencies.append(time.perf_counter() - start)
            if data != expected:
                raise Unmeasurable(f"the WebSocket's echo is not what was sent: {data!r}")
        return latencies
