"""The control socket: one JSON line asks, one JSON line answers, then the connection is closed.

    {"command": "ping"}   {"ok": true, "pid": ..., "guardian": ..., "version": ...}
    {"command": "stop"}   {"ok": true, "pid": ...}: accepted; the pid is gone when it has happened
    anything else         {"ok": false, "error": TEXT}

Nothing here waits: connections are non-blocking, few, bounded in size, and closed when they have said nothing for a
while, so that no client can hold up the supervisor or use up its descriptors.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any

MAX_REQUEST_BYTES = 64 * 1024
MAX_CONNECTIONS = 16
IDLE_SECONDS = 5.0

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]

_CREDENTIALS = struct.Struct("=iII")  # struct ucred: pid, uid, gid


class Control:
    """Listens at `path`; `answer` gets each request and returns the reply, at once."""

    def __init__(self, path: str, answer: Answer) -> None:
        self._answer = answer
        self._connections: dict[int, _Connection] = {}
        self._epoll = select.epoll()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._listener.bind(path)
            os.chmod(path, 0o600)
            self._listener.listen(MAX_CONNECTIONS)
            self._epoll.register(self._listener, select.EPOLLIN)
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """Readable when `handle` has something to do: an epoll of its own, which another one may watch."""
        return self._epoll.fileno()

    def handle(self, now: float) -> None:
        """Accept, read and answer what is there; `now` in monotonic seconds."""
        for descriptor, _ in self._epoll.poll(0):
            if descriptor == self._listener.fileno():
                self._accept(now)
            elif self._connections[descriptor].read(self._answer):
                self._drop(descriptor)

    def step(self, now: float) -> float | None:
        """Close what has been idle for too long; returns when the next one will have been."""
        for descriptor, connection in list(self._connections.items()):
            if now >= connection.deadline:
                self._drop(descriptor)
        return min((connection.deadline for connection in self._connections.values()), default=None)

    def close(self) -> None:
        """Close everything; the path is the runtime folder's to remove."""
        for descriptor in list(self._connections):
            self._drop(descriptor)
        self._listener.close()
        self._epoll.close()

    def _accept(self, now: float) -> None:
        try:
            one, _ = self._listener.accept()
        except OSError:  # it has gone again, or there is no descriptor: it may try again
            return
        one.setblocking(False)
        _, uid, _ = _CREDENTIALS.unpack(one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if uid not in (os.geteuid(), 0) or len(self._connections) >= MAX_CONNECTIONS:
            one.close()
            return
        self._connections[one.fileno()] = _Connection(one, now + IDLE_SECONDS)
        self._epoll.register(one, select.EPOLLIN)

    def _drop(self, descriptor: int) -> None:
        self._epoll.unregister(descriptor)
        self._connections.pop(descriptor).socket.close()


class _Connection:
    def __init__(self, one: socket.socket, deadline: float) -> None:
        self.socket = one
        self.deadline = deadline
        self._data = b""

    def read(self, answer: Answer) -> bool:
        """Take what has come, and answer a whole line; whether the connection has done its work."""
        try:
            data = self.socket.recv(MAX_REQUEST_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            return True
        self._data += data
        line, newline, _ = self._data.partition(b"\n")
        if newline:
            with contextlib.suppress(OSError):  # a client that does not read its short answer does without
                self.socket.send(_reply(line, answer), socket.MSG_NOSIGNAL)
            return True
        return not data or len(self._data) > MAX_REQUEST_BYTES


def _reply(line: bytes, answer: Answer) -> bytes:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        request = None
    if isinstance(request, dict):
        reply = answer(request)
    else:
        reply = {"ok": False, "error": 'found no JSON object, expected one such as {"command": "ping"}'}
    return json.dumps(dict(reply)).encode() + b"\n"
