"""The control socket: one JSON line asks, one JSON line answers, then the connection is closed.

    {"command": "ping"}   {"ok": true, "pid": ..., "guardian": ..., "version": ...}
    {"command": "stop"}   {"ok": true, "pid": ...}: accepted; the pid is gone when it has happened
    {"command": "release", "session": ID_OR_DIGEST, "server": NAME or null, "when_idle": BOOL}    see releases.py
    {"command": "reload" | "scale" | "drain" | "wait", ...}    see orders.py
    anything else         {"ok": false, "error": TEXT}

Nothing here waits: connections are non-blocking, few, bounded in size, and closed when they have said nothing for a
while, so that no client can hold up the supervisor or use up its descriptors. An answer that takes time is given later;
whoever owes it bounds that time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any

logger = logging.getLogger("gym_supervise.supervisor")

MAX_REQUEST_BYTES = 64 * 1024
MAX_CONNECTIONS = 16
IDLE_SECONDS = 5.0

Reply = Callable[[Mapping[str, Any]], None]
"""Gives the answer to one request, once; a client that is gone by then does without."""

Answer = Callable[[Mapping[str, Any], Reply], Mapping[str, Any] | None]
"""Gets a request and a Reply; returns the answer, or None: it comes later, through the Reply."""

_CREDENTIALS = struct.Struct("=iII")  # struct ucred: pid, uid, gid


class Control:
    """Listens at `path`; `answer` gets each request and returns at once, with the answer or without it."""

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
            elif (one := self._connections.get(descriptor)) is not None and one.read(self._answer, self._finish):
                self._drop(one)

    def step(self, now: float) -> float | None:
        """Close what has been idle for too long; returns when the next one will have been."""
        for one in list(self._connections.values()):
            if not one.asked and now >= one.deadline:
                self._drop(one)
        return min((one.deadline for one in self._connections.values() if not one.asked), default=None)

    def close(self) -> None:
        """Close everything; the path is the runtime folder's to remove."""
        for one in list(self._connections.values()):
            self._drop(one)
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

    def _finish(self, one: _Connection, answer: Mapping[str, Any]) -> None:
        """Give a late answer, if its client is still there."""
        if self._connections.get(one.descriptor) is one:
            one.send(answer)
            self._drop(one)

    def _drop(self, one: _Connection) -> None:
        self._epoll.unregister(one.descriptor)
        self._connections.pop(one.descriptor).socket.close()


class _Connection:
    """`asked`: a whole request has come and its answer is under way; nothing more is read then but the end."""

    def __init__(self, one: socket.socket, deadline: float) -> None:
        self.socket = one
        self.descriptor = one.fileno()
        self.deadline = deadline
        self.asked = False
        self._data = b""

    def read(self, answer: Answer, finish: Callable[[_Connection, Mapping[str, Any]], None]) -> bool:
        """Take what has come, and answer a whole line; whether the connection has done its work."""
        try:
            data = self.socket.recv(MAX_REQUEST_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            return True
        if self.asked:
            return not data
        self._data += data
        line, newline, _ = self._data.partition(b"\n")
        if not newline:
            return not data or len(self._data) > MAX_REQUEST_BYTES
        self.asked = True
        reply = _answer(line, answer, lambda late: finish(self, late))
        if reply is not None:
            self.send(reply)
        return reply is not None

    def send(self, answer: Mapping[str, Any]) -> None:
        """Send an answer; a client that does not read it does without."""
        with contextlib.suppress(OSError):
            self.socket.send(json.dumps(dict(answer)).encode() + b"\n", socket.MSG_NOSIGNAL)


def _answer(line: bytes, answer: Answer, reply: Reply) -> Mapping[str, Any] | None:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        return {"ok": False, "error": 'found no JSON object, expected one such as {"command": "ping"}'}
    try:
        return answer(request, reply)
    except Exception as error:  # whatever an operator asks, the service goes on
        logger.exception("the command %.80r failed", request.get("command"))
        return {"ok": False, "error": f"the supervisor failed at it: {error!r}; its log has more"}
