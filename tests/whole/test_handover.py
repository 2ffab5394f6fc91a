"""Connections that are handed to the worker of their session: on running services, on both loops and both protocols."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as open_websocket
from whole.harness import Service, eventually

from supervisor.handover.protocols import IN_A_ROW

Make = Callable[..., Service]

APP = "whole.handover_app:app"
AFFINITY = {"preset": "custom", "sources": [{"header": "x-session"}], "unknown": "claim"}
STACKS: dict[str, dict[str, Any]] = {
    "uvloop, httptools": {"loop": "uvloop", "http": "httptools", "ws": "websockets-sansio"},
    "asyncio, h11": {"loop": "asyncio", "http": "h11", "ws": "wsproto"},
    "uvloop, h11": {"loop": "uvloop", "http": "h11", "ws": "websockets"},
    "asyncio, httptools": {"loop": "asyncio", "http": "httptools", "ws": "wsproto"},
}


class Client:
    """One connection, read reply by reply."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._data = b""

    def send(self, path: str = "/count", session: str | None = None, *, more: str = "", body: bytes = b"") -> None:
        """One request."""
        self.sock.sendall(request(path, session, more=more, body=body))

    def read(self) -> tuple[bytes, list[str]]:
        """One reply: its head, and what it says."""
        while b"\r\n\r\n" not in self._data:
            self._more()
        head, _, self._data = self._data.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 "), head
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        while len(self._data) < length:
            self._more()
        body, self._data = self._data[:length], self._data[length:]
        return head, body.rstrip(b".").decode().split()

    def ask(self, path: str = "/count", session: str | None = None, **more: Any) -> list[str]:
        """A request and its reply."""
        self.send(path, session, **more)
        return self.read()[1]

    @property
    def worker(self) -> int:
        """The pid of the worker that has the connection now."""
        return int(self.ask("/whoami")[0])

    def _more(self) -> None:
        part = self.sock.recv(65536)
        assert part, f"the server has closed after {self._data!r}"
        self._data += part


def request(path: str, session: str | None, *, more: str = "", body: bytes = b"") -> bytes:
    """A POST."""
    named = f"x-session: {session}\r\n" if session else ""
    return f"POST {path} HTTP/1.1\r\nhost: t\r\n{named}{more}content-length: {len(body)}\r\n\r\n".encode() + body


class Two:
    """A service of two workers, a session of each, and connections to the one or the other."""

    def __init__(self, service: Service, connect: Callable[[], socket.socket] | None = None) -> None:
        self.service = service
        self._connect = connect or (lambda: socket.create_connection(("127.0.0.1", service.port), 30))
        self._opened: list[socket.socket] = []
        self.names = iter(range(10**9))

    def session_on(self, pid: int) -> str:
        """A new session that this worker owns."""
        while True:
            client = self.on(pid)
            session = f"s{next(self.names)}"
            if client.ask("/count", session)[0] == str(pid):
                return session

    def on(self, pid: int) -> Client:
        """A new connection that this worker has accepted."""
        while True:
            client = Client(self._connect())
            self._opened.append(client.sock)
            if client.worker == pid:
                return client

    @property
    def pids(self) -> tuple[int, int]:
        """The two."""
        one, other = sorted(self.service.rows())
        return one, other

    def relayed(self) -> int:
        """How many requests were, so far."""
        return sum(row.relayed_out for row in self.service.rows().values())

    def close(self, *, but: Client | None = None) -> None:
        """Close the connections, but for one."""
        for sock in self._opened:
            if but is None or sock is not but.sock:
                sock.close()


MORE = ("uvloop, h11", "asyncio, httptools")
"""Each half of them is in the other two."""


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=[pytest.mark.soak] if name in MORE else []) for name in STACKS]
)
def two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """One service for each stack."""
    service = Service(
        tmp_path_factory.mktemp("handover"), APP, workers=2, affinity=AFFINITY, uvicorn=STACKS[request.param]
    )
    try:
        found = Two(service.start())
        yield found
        found.close()
        assert service.stop() == 0, service.log.read_text()
        assert "Traceback" not in service.log.read_text()
    finally:
        left = service.cleanup()
    assert left == []


def started(service: Make, stack: str = "uvloop, httptools", **options: Any) -> Two:
    """A service of its own."""
    given = STACKS[stack] | options.pop("uvicorn", {})
    return Two(service(APP, workers=2, affinity=AFFINITY, uvicorn=given, **options).start())


def moved(two: Two, here: int, there: int) -> tuple[Client, str]:
    """A connection that worker `here` has accepted and `there` has now, and its session."""
    session = two.session_on(there)
    client = two.on(here)
    for _ in range(IN_A_ROW):
        assert client.ask("/whoami", session)[0] == str(there)
    assert client.worker == there
    return client, session


def test_requests_in_a_row_move(two: Two) -> None:
    """The first few are relayed, the others are the owner's own; the session and the client's address stay the same."""
    here, there = two.pids
    session = two.session_on(there)
    client = two.on(here)
    port = client.sock.getsockname()[1]
    two.close(but=client)

    def connections() -> list[int]:
        return [two.service.rows()[pid].connections for pid in (here, there)]

    eventually(lambda: connections() == [1, 0], "the connection to be the only one")
    before = two.relayed()
    for number in range(3 * IN_A_ROW):
        assert client.ask("/count", session) == [str(there), session, str(number + 2), str(port)]
    assert client.worker == there
    assert two.relayed() - before == IN_A_ROW
    eventually(lambda: connections() == [0, 1], "the connection to be counted there")


def test_other_sessions_and_none_keep_a_connection(two: Two) -> None:
    """Only requests in a row for one other worker move it."""
    here, there = two.pids
    own, other = two.session_on(here), two.session_on(there)
    client = two.on(here)
    for _ in range(3):
        for _ in range(IN_A_ROW - 1):
            assert client.ask("/whoami", other)[0] == str(there)
        assert client.ask("/whoami", own)[0] == str(here)
        for _ in range(IN_A_ROW - 1):
            assert client.ask("/whoami", other)[0] == str(there)
        assert client.worker == here


def play(two: Two, count: int, seed: int, *, ahead: int) -> None:
    """`count` requests on one connection, for sessions of both workers in runs of any length, up to `ahead` of them on
    the way at once and cut anywhere: each is answered once, in order, by its session's worker.
    """
    chance = random.Random(seed)
    pids = two.pids
    sessions = {two.session_on(pid): pid for pid in pids for _ in range(2)}
    counts = Counter(dict.fromkeys(sessions, 1))
    client = two.on(pids[0])
    client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    waiting: list[tuple[str, int]] = []
    unsent = b""
    left, run, session = count, 0, ""
    while left or waiting:
        if left and len(waiting) < ahead:
            if not run:
                run, session = chance.randint(1, 3 * IN_A_ROW), chance.choice(list(sessions))
            run -= 1
            left -= 1
            counts[session] += 1
            waiting.append((session, counts[session]))
            unsent += request("/count", session, body=b"b" * chance.choice((0, 0, 100)))
            if chance.random() < 0.5:
                cut = chance.randint(0, len(unsent)) if ahead > 1 else len(unsent)
                client.sock.sendall(unsent[:cut])
                unsent = unsent[cut:]
        if len(waiting) == ahead or not left or chance.random() < 0.3:
            client.sock.sendall(unsent)
            unsent = b""
            for _ in range(chance.randint(1, len(waiting)) if waiting else 0):
                expected, number = waiting.pop(0)
                said = client.read()[1]
                assert said[:3] == [str(sessions[expected]), expected, str(number)], (count - left, said)


@pytest.mark.parametrize("ahead", [1, 2, 5])
def test_no_request_is_lost_or_doubled(two: Two, ahead: int) -> None:
    """Sessions of both workers take turns on one connection, which goes to and fro; also with requests sent ahead."""
    play(two, 600, ahead, ahead=ahead)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("ahead", [1, 2, 5])
def test_no_request_of_many_is_lost_or_doubled(two: Two, ahead: int) -> None:
    """The same, 20,000 of them."""
    play(two, 20_000, 100 + ahead, ahead=ahead)


@pytest.mark.parametrize("cut", [1, 30, -1])
def test_half_a_request_is_not_left_behind(two: Two, cut: int) -> None:
    """The last request before the move comes with the beginning of the next one; whoever reads that goes on with it."""
    here, there = two.pids
    session = two.session_on(there)
    client = two.on(here)
    for _ in range(IN_A_ROW - 1):
        client.ask("/count", session)
    one = request("/count", session)
    client.sock.sendall(one + one[:cut])
    assert client.read()[1][2] == str(IN_A_ROW + 1)
    client.sock.sendall(one[cut:])
    assert client.read()[1][2] == str(IN_A_ROW + 2)


def test_a_reply_is_written_before_the_move(two: Two) -> None:
    """Large replies to a client that reads late are whole."""
    here, there = two.pids
    session = two.session_on(there)
    client = two.on(here)
    for number in range(IN_A_ROW + 1):
        client.send("/count?size=5000000", session)
        if number >= IN_A_ROW - 1:
            client.send("/count", session)
        assert client.read()[1][0] == str(there)
        if number >= IN_A_ROW - 1:
            assert client.read()[1][0] == str(there)


def test_the_rest_of_a_body_is_not_left_behind(two: Two) -> None:
    """Replies that do not wait for their request's body: what is still to come of it belongs to no other request."""
    here, there = two.pids
    session = two.session_on(there)
    client = two.on(here)
    for number in range(2 * IN_A_ROW):
        one = request("/early", session, body=b"b" * 100)
        client.sock.sendall(one[:-50])
        assert client.read()[1][:3] == [str(there), session, str(number + 2)]
        client.sock.sendall(one[-50:])


def test_a_connection_that_ends_is_not_moved(two: Two) -> None:
    """`Connection: close` after many in a row: the reply and the end are as without a move."""
    here, there = two.pids
    session = two.session_on(there)
    client = two.on(here)
    for _ in range(IN_A_ROW - 1):
        client.ask("/count", session)
    client.send("/count", session, more="connection: close\r\n")
    head, body = client.read()
    assert b"connection: close" in head.lower()
    assert body[0] == str(there)
    assert client.sock.recv(100) == b""


def test_nothing_is_left_in_either_worker(two: Two) -> None:
    """After hundreds of moves each worker has as many descriptors as before."""
    here, there = two.pids
    sessions = {pid: two.session_on(pid) for pid in two.pids}
    client = two.on(here)

    def to_and_fro(times: int) -> None:
        for _ in range(times):
            for pid, session in ((there, sessions[there]), (here, sessions[here])):
                for _ in range(IN_A_ROW):
                    client.ask("/whoami", session)
                assert client.worker == pid

    def descriptors() -> list[int]:
        return [int(client.ask("/descriptors", session)[2]) for session in sessions.values()]

    to_and_fro(3)
    before = descriptors()
    to_and_fro(60)
    eventually(lambda: descriptors() == before, f"{before} descriptors again")


def test_a_worker_that_ends_takes_nothing_with_it(service: Make) -> None:
    """A connection that was handed over goes on when its first worker is killed."""
    two = started(service)
    here, there = two.pids
    client, session = moved(two, here, there)
    os.kill(here, signal.SIGKILL)
    two.service.wait_restarted()
    assert client.ask("/count", session)[:3] == [str(there), session, "2"]
    two.close()


def test_the_owners_death(service: Make) -> None:
    """Its connection breaks, as those of any dead worker; the next one hears that the session is gone."""
    two = started(service)
    here, there = two.pids
    client, session = moved(two, here, there)
    os.kill(there, signal.SIGKILL)
    with suppress(ConnectionResetError):
        assert client.sock.recv(100) == b""
    two.service.wait_restarted()
    client = two.on(here)
    client.send("/count", session)
    assert client.read()[0].startswith(b"HTTP/1.1 410 ")
    two.close()


def test_a_draining_owner_gets_no_connection(service: Make) -> None:
    """Its sessions' requests are relayed to it; those on a connection that it has get `Connection: close`."""
    two = started(service, timeouts={"drain_seconds": 60})
    here, there = two.pids
    client, session = moved(two, here, there)
    assert two.service.run("drain", str(two.service.rows()[there].index)).returncode == 0
    other = two.on(here)
    for number in range(3 * IN_A_ROW):
        assert other.ask("/count", session)[:3] == [str(there), session, str(number + 2)]
    assert other.worker == here
    client.send("/count", session)
    assert b"connection: close" in client.read()[0].lower()
    assert client.sock.recv(100) == b""
    two.close()


def test_an_owner_that_cannot_be_reached(service: Make) -> None:
    """Where its socket is gone, all is relayed, and nobody notices."""
    two = started(service)
    here, there = two.pids
    for path in two.service.runtime_dir.glob("*.fds"):
        path.unlink()
    session = two.session_on(there)
    client = two.on(here)
    before = two.relayed()
    for number in range(4 * IN_A_ROW):
        assert client.ask("/count", session)[2] == str(number + 2)
    assert client.worker == here
    assert two.relayed() - before == 4 * IN_A_ROW
    two.close()


@pytest.mark.parametrize("stack", ["uvloop, httptools", "asyncio, h11"])
def test_keep_alive_ends_it_there(service: Make, stack: str) -> None:
    """A connection that was handed over and is not used again is closed in its time."""
    two = started(service, stack, uvicorn={"timeout_keep_alive": 1})
    here, there = two.pids
    session = two.session_on(there)
    client = two.on(here)
    for _ in range(IN_A_ROW):
        client.ask("/whoami", session)
    eventually(lambda: two.service.rows()[there].connections, "the connection to be there")
    assert client.sock.recv(100) == b""
    two.close()


def test_behind_a_unix_socket(service: Make, tmp_path: Path) -> None:
    """The same there."""
    path = str(tmp_path / "s")

    def connect() -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(30)
        sock.connect(path)
        return sock

    two = started(service, bind=f"unix:{path}")
    two._connect = connect
    here, there = two.pids
    client, session = moved(two, here, there)
    assert client.ask("/count", session) == [str(there), session, "2", "-"]
    two.close()


def websocket(client: Client, session: str, **options: Any) -> ClientConnection:
    """A WebSocket on a connection that a certain worker has accepted."""
    found: ClientConnection = open_websocket(
        "ws://t/echo", sock=client.sock, additional_headers={"x-session": session}, **options
    )
    return found


def test_websockets_go_with_their_handshake(two: Two) -> None:
    """To the owner, with client, subprotocol and messages; nothing of them is relayed. Also a hundred at once."""
    here, there = two.pids
    session = two.session_on(there)
    clients = [two.on(here) for _ in range(30)]
    before = two.relayed()
    with ExitStack() as stack:
        for number, client in enumerate(clients):
            port = str(client.sock.getsockname()[1])
            one = stack.enter_context(websocket(client, session, subprotocols=["a", "b"]))
            assert one.subprotocol == "a"
            assert one.recv() == f"{there} {session} {number + 2} {port}".encode()
            one.send("x" * 70_000)
            assert one.recv() == "x" * 70_000
    assert two.relayed() == before


def test_websockets_in_a_burst(two: Two) -> None:
    """All of a hundred handshakes that come at once find their owner's socket open."""
    here, there = two.pids
    session = two.session_on(there)
    clients = [two.on(here) for _ in range(100)]
    before = two.relayed()
    key = "sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    head = f"host: t\r\nx-session: {session}\r\nupgrade: websocket\r\nconnection: upgrade\r\n{key}\r\n"
    asked = f"GET /echo HTTP/1.1\r\n{head}".encode()
    for client in clients:
        client.sock.sendall(asked)
    for client in clients:
        data = b""
        while f"{there} {session} ".encode() not in data:
            data += client.sock.recv(4096)
        assert data.startswith(b"HTTP/1.1 101 ")
    assert two.relayed() == before


def test_a_websockets_owner_dies(service: Make) -> None:
    """Its connection breaks, and another one is refused with the reason."""
    two = started(service)
    here, there = two.pids
    session = two.session_on(there)
    with websocket(two.on(here), session) as one:
        one.recv()
        os.kill(there, signal.SIGKILL)
        with pytest.raises(ConnectionClosed):
            one.recv(timeout=30)
    two.service.wait_restarted()
    with pytest.raises(InvalidStatus, match="410"):
        websocket(two.on(here), session).__enter__()
    two.close()


def test_tls_stays(service: Make, tmp_path: Path) -> None:
    """A connection with TLS has its state in its worker: its requests are relayed."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    files = ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "certificate")]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    subprocess.run(
        ["openssl", "req", "-x509", *curve, "-nodes", "-subj", "/CN=t", *files], check=True, capture_output=True
    )
    options = {"ssl_certfile": str(tmp_path / "certificate"), "ssl_keyfile": str(tmp_path / "key")}
    two = started(service, uvicorn=options)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    plain = two._connect
    two._connect = lambda: context.wrap_socket(plain())
    here, there = two.pids
    session = two.session_on(there)
    client = two.on(here)
    for number in range(3 * IN_A_ROW):
        assert client.ask("/count", session)[2] == str(number + 2)
    assert client.worker == here
    two.close()
