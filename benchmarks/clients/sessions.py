"""Sessions that a client names itself: both apps' cookies are signed with a secret that the benchmark knows."""

from __future__ import annotations

import socket
from uuid import uuid4

from benchmarks.clients.raw import ask, connect, request_bytes
from benchmarks.harness.rows import Unmeasurable
from benchmarks.servers import COOKIE, SECRET
from server_adapters.session_cookie import CookieSettings, SessionCookie

MOST_TRIES = 400

_signer = SessionCookie(CookieSettings(COOKIE, SECRET), field="session_id")


def new_cookie() -> str:
    """The Cookie header's value of a new session."""
    return f"{COOKIE}={_signer.sign({'session_id': str(uuid4())})}"


class Workers:
    """The two workers of a service, told apart by their pids: connections to the first, sessions of both.

    `here` and `there` are cookies of sessions that the first and the second worker owns.
    """

    def __init__(self, port: int, *, connections: int) -> None:
        self._port = port
        self._all: list[socket.socket] = []
        first, self.socks = 0, list[socket.socket]()
        while len(self.socks) < connections:
            sock, pid = self._connect()
            first = first or pid
            if pid == first:
                self.socks.append(sock)
        self.first = first
        self.here, self.there = self._session(owned_by_first=True), self._session(owned_by_first=False)

    def _connect(self) -> tuple[socket.socket, int]:
        if len(self._all) >= MOST_TRIES:
            raise Unmeasurable(f"{MOST_TRIES} connections, and still not enough of them at one worker")
        sock = connect(self._port)
        self._all.append(sock)
        return sock, int(ask(sock, request_bytes("GET", "/whoami"))[1])

    def _session(self, *, owned_by_first: bool) -> str:
        for _ in range(MOST_TRIES):
            cookie = new_cookie()
            _, body = ask(self.socks[0], request_bytes("POST", "/seed_session", cookie=cookie, body=b'{"count": 0}'))
            pid = int(body if body.isdigit() else body.rpartition(b":")[2].strip(b" }"))
            if (pid == self.first) is owned_by_first:
                return cookie
        raise Unmeasurable(f"{MOST_TRIES} sessions, and not one at the {'first' if owned_by_first else 'other'} worker")

    def close(self) -> None:
        """Close the connections."""
        for sock in self._all:
            sock.close()
