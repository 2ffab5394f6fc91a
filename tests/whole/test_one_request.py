"""One request, wherever it lands: the owner serves it, and it sees what it would have seen alone."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest
from whole.apps import NAME
from whole.harness import Connection, Service, eventually


@pytest.fixture(scope="module")
def gym(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service with four workers for the tests of this file."""
    service = Service(tmp_path_factory.mktemp("gym"), "whole.apps:gym", health="/healthz")
    service.start()
    yield service
    assert service.stop() == 0, service.log.read_text()
    assert service.cleanup() == [], service.log.read_text()


class Session:
    """A session on the service: its cookie, its owner, and a connection to each worker."""

    def __init__(self, service: Service) -> None:
        self.connections = service.connections()
        status, headers, body = service.connect().ask("POST", "/seed_session", body={"n": 1})
        assert status == 200
        self.cookie = headers["set-cookie"].split(";")[0]
        self.owner = json.loads(body)["pid"]
        self.id = json.loads(body)["session"]

    @property
    def here(self) -> Connection:
        """A connection to the owner."""
        return self.connections[self.owner]

    @property
    def elsewhere(self) -> Connection:
        """A connection to another worker."""
        return next(connection for pid, connection in self.connections.items() if pid != self.owner)


@pytest.fixture
def session(gym: Service) -> Session:
    """A started session."""
    return Session(gym)


def raw(connection: Connection, request: bytes) -> bytes:
    """Send bytes, and read until the server closes."""
    sock = connection.http.sock
    assert isinstance(sock, socket.socket)
    sock.sendall(request)
    parts = []
    while part := sock.recv(65536):
        parts.append(part)
    return b"".join(parts)


def test_every_worker_serves_the_session_through_its_owner(session: Session) -> None:
    """Four connections, four accepting workers, one owner, one state."""
    for connection in session.connections.values():
        status, headers, body = connection.ask("POST", "/show", headers={"cookie": session.cookie})
        assert status == 200
        assert json.loads(body) == {"pid": session.owner, "state": {"n": 1}}
        assert headers["set-cookie"].startswith(NAME)


def test_a_hundred_sessions_on_one_connection(gym: Service) -> None:
    """Keep-alive does not bind a connection to a session: the route is chosen for each request."""
    connection = gym.connect()
    cookies = []
    for number in range(100):
        status, headers, _ = connection.ask("POST", "/seed_session", body={"n": number})
        assert status == 200
        cookies.append(headers["set-cookie"].split(";")[0])
    owners = set()
    for number, cookie in enumerate(cookies):
        _, _, body = connection.ask("POST", "/show", headers={"cookie": cookie})
        seen = json.loads(body)
        assert seen["state"] == {"n": number}
        owners.add(seen["pid"])
    assert owners == set(gym.rows())


def test_new_sessions_go_where_there_is_room(gym: Service) -> None:
    """Sessions started over one connection end up evenly on all workers."""
    connection = gym.connect()
    before = {pid: row.sessions for pid, row in gym.rows().items()}
    for number in range(40):
        connection.ask("POST", "/seed_session", body={"n": number})
    counts = [row.sessions for row in gym.rows().values()]
    assert max(counts) - min(counts) <= max(1, max(before.values()) - min(before.values()))


SAME = [
    ("GET", "/echo/plain", None, {}),
    ("POST", "/echo/body", b"hello", {"content-type": "text/plain"}),
    ("POST", "/echo/a%2Fb%20c/%C3%A9?x=1&y=%20", b"", {"x-one": "1"}),
    ("PUT", "/echo/put", b"\x00\xff" * 1000, {}),
    ("DELETE", "/echo/delete", None, {}),
    ("HEAD", "/echo/head", None, {}),
    ("POST", "/status/204", b"", {}),
    ("POST", "/status/304", b"", {}),
    ("POST", "/status/418", b"", {}),
    ("HEAD", "/status/200", None, {}),
    ("POST", "/cookies", b"", {}),
    ("GET", "/stream?n=3&size=10", None, {}),
    ("POST", "/fail", b"", {}),
    ("GET", "/nowhere", None, {}),
    ("GET", "/verify", None, {}),
]


@pytest.mark.parametrize(("method", "path", "body", "headers"), SAME)
def test_relayed_and_local_are_the_same(
    session: Session, method: str, path: str, body: bytes | None, headers: dict[str, str]
) -> None:
    """What the app sees and what the client gets do not tell where the request landed."""
    replies = []
    for connection in (session.here, session.elsewhere):
        status, got, content = connection.ask(method, path, body=body, headers={**headers, "cookie": session.cookie})
        kept = sorted(
            (name.lower(), value) for name, value in got.items() if name.lower() not in ("date", "set-cookie")
        )
        names = [value.split("=")[0] for value in got.get_all("set-cookie") or []]
        if path.startswith("/echo") and method != "HEAD":
            seen = json.loads(content)
            assert seen["pid"] == session.owner
            assert seen["client"][1] == connection.http.sock.getsockname()[1]
            content = json.dumps(seen | {"client": None}).encode()
            kept = [(name, value) for name, value in kept if name != "content-length"]
        replies.append((status, kept, names, content))
    assert replies[0] == replies[1]


def test_headers_keep_their_order_and_number(session: Session) -> None:
    """Several Cookie headers and repeated names arrive as they were sent, bytes above 127 included."""
    request = (
        b"POST /echo/raw HTTP/1.1\r\nHost: t\r\nX-B: 1\r\nX-A: \xe9\r\nX-B: 2\r\nCookie: other=1\r\nCookie: "
        + session.cookie.encode()
        + b"\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    )
    reply = raw(session.elsewhere, request)
    seen = json.loads(reply.split(b"\r\n\r\n", 1)[1])
    assert seen["pid"] == session.owner
    assert [tuple(pair) for pair in seen["headers"] if pair[0] in ("x-a", "x-b")] == [
        ("x-b", "1"),
        ("x-a", "\xe9"),
        ("x-b", "2"),
    ]
    assert sum(name == "cookie" for name, _ in seen["headers"]) == 2
    assert seen["body"] == "ok"


def test_a_chunked_upload_passes(session: Session) -> None:
    """A body of unknown length reaches the owner whole."""

    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield b"y" * 10_000

    connection = session.elsewhere.http
    connection.request("POST", "/count", body=chunks(), headers={"cookie": session.cookie}, encode_chunked=True)
    reply = connection.getresponse()
    assert json.loads(reply.read()) == {"bytes": 1_000_000, "pid": session.owner}


def test_a_large_reply_passes(session: Session) -> None:
    """32 MiB in chunks through another worker, none lost."""
    status, _, body = session.elsewhere.ask("GET", "/stream?n=512&size=65536", headers={"cookie": session.cookie})
    assert (status, len(body)) == (200, 512 * 65536)


def test_continue_is_said_when_the_app_reads(session: Session) -> None:
    """A client that waits for 100 Continue gets it through the relay, and then its reply."""
    sock = session.elsewhere.http.sock
    assert sock is not None
    sock.sendall(
        b"POST /count HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 5\r\nConnection: close\r\nCookie: "
        + session.cookie.encode()
        + b"\r\n\r\n"
    )
    assert sock.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
    sock.sendall(b"12345")
    parts = []
    while part := sock.recv(65536):
        parts.append(part)
    assert json.loads(b"".join(parts).split(b"\r\n\r\n", 1)[1]) == {"bytes": 5, "pid": session.owner}


def test_health_is_answered_by_the_router(gym: Service) -> None:
    """The health route is 200 from a ready worker, without the app and without a cookie."""
    status, headers, body = gym.connect().ask("GET", "/healthz")
    assert (status, body) == (200, b"ok\n")
    assert headers["set-cookie"] is None


def test_what_names_no_session_leaves_none(gym: Service) -> None:
    """Id-less GETs, preflights, 404s and 405s leave no claim, and no cookie that could name one."""
    connection = gym.connect()

    def claims() -> int:
        with gym.segment() as segment:
            return int(segment.table.count()[0])

    before = claims()
    for method, path in (
        ("GET", "/whoami"),
        ("GET", "/nowhere"),
        ("OPTIONS", "/show"),
        ("GET", "/verify"),
        ("POST", "/whoami"),
    ):
        _, headers, _ = connection.ask(method, path)
        assert headers["set-cookie"] is None, (method, path)
    eventually(lambda: claims() == before, "the claims of requests without a session to be gone")


def test_a_session_is_named_and_claimed_at_once(gym: Service, session: Session) -> None:
    """The id that a start's reply names is claimed by the worker that ran it, and the table says so."""
    with gym.segment() as segment:
        claim = segment.table.lookup(session.id.encode())
        assert claim is not None
        row = segment.ring.row(claim.incarnation)
        assert row is not None
        assert row.pid == session.owner
