"""Ids that servers give out inside bodies and frames, and ids that pages make, on a running service."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from whole.harness import Connection, Service, eventually
from whole.test_websockets import landing, opened

CUSTOM = {
    "preset": "custom",
    "sources": [{"path": "/session/(?P<session>[0-9a-f]{32})"}],
    "replies": [
        {"body_json": {"path": "result.id", "routes": ["/open"]}},
        {"body_event": {"event": "endpoint", "pattern": "/session/(?P<session>.*)", "routes": ["GET /sse"]}},
        {"frame_json": {"path": "config.sessionId", "routes": ["/page"]}},
    ],
    "starts": ["/open", "GET /sse", "WEBSOCKET /page"],
    "lasts": ["GET /sse", "WEBSOCKET /page"],
    "session_close_retry_window_seconds": 0.2,
    "gone": {"status": 404, "body": "gone"},
}


def running(folder: Any, affinity: dict[str, Any]) -> Iterator[Service]:
    """A service, from its start to its end, which leaves nothing."""
    service = Service(folder, "whole.pages_app:app", affinity=affinity).start()
    yield service
    assert service.stop() == 0
    assert service.cleanup() == [], service.log.read_text()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service whose ids are given out."""
    yield from running(tmp_path_factory.mktemp("pages"), CUSTOM)


@pytest.fixture(scope="module")
def marimo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service whose pages make the ids."""
    yield from running(tmp_path_factory.mktemp("marimo"), {"preset": "marimo"})


def seen(connections: dict[int, Connection], session: str) -> set[tuple[int, int]]:
    """What every worker answers for a session: status and the pid of who has answered."""
    replies = [connection.ask("GET", f"/session/{session}") for connection in connections.values()]
    return {(status, json.loads(content)["pid"]) for status, _, content in replies}


def events(connection: Connection) -> Any:
    """The stream of events on a connection."""
    connection.http.request("GET", "/sse")
    return connection.http.getresponse()


def id_in(stream: Any) -> str:
    """The id that a stream of events gives out."""
    while not (line := stream.readline()).startswith(b"data: "):
        pass
    return str(line.decode().rpartition("/")[2].strip())


def claimed(service: Service, session: str) -> bool:
    """Whether the table has a claim of the session."""
    with service.segment() as segment:
        return segment.table.lookup(session.encode()) is not None


def given_out(socket: ClientConnection) -> str:
    """The id in the second frame of a page."""
    assert json.loads(socket.recv(10)) == {"hello": 1}
    return str(json.loads(socket.recv(10))["config"]["sessionId"])


def test_an_id_in_a_frame(pages: Service) -> None:
    """It is claimed before the page has it: every worker leads to the session, until its WebSocket has ended."""
    connections = pages.connections()
    for on in connections:
        with opened(pages, on, "/page") as socket:
            session = given_out(socket)
            found = seen(connections, session)
            assert [status for status, _ in found] == [200]
        eventually(lambda: not claimed(pages, session), "the claim to go")  # noqa: B023
        eventually(lambda: {status for status, _ in seen(connections, session)} == {404}, "the session's end")  # noqa: B023


def test_an_id_in_json(pages: Service) -> None:
    """A text that looks like one is none."""
    connections = pages.connections()
    for connection in connections.values():
        status, _, content = connection.ask("POST", "/open")
        found = seen(connections, json.loads(content)["result"]["id"])
        assert (status, [status for status, _ in found]) == (200, [200])


def test_an_id_in_an_event(pages: Service) -> None:
    """The stream goes on while its session is asked for; when its client has left, the claim goes."""
    connections = pages.connections()
    stream = events(pages.connect())
    session = id_in(stream)
    assert [status for status, _ in seen(connections, session)] == [200]
    assert stream.readline() == b"\n"
    assert stream.readline() == b": tick\n"
    stream.close()
    pages.opened[-1].http.close()

    eventually(lambda: not claimed(pages, session), "the claim to go")


def test_the_owner_dies(pages: Service) -> None:
    """Polls that wait for it at other workers get the gone reply, and WebSockets there close with 1012."""
    _, _, content = pages.connect().ask("POST", "/open")
    session = json.loads(content)["result"]["id"]
    connections = pages.connections()
    ((_, owner),) = seen(connections, session)
    other = next(connection for pid, connection in connections.items() if pid != owner)
    with ExitStack() as stack:
        sockets = [stack.enter_context(opened(pages, other.worker, "/page")) for _ in range(8)]
        owners = [next(iter(seen(connections, given_out(socket))))[1] for socket in sockets]
        assert owner in owners
        pool = stack.enter_context(ThreadPoolExecutor(1))
        poll = pool.submit(other.ask, "GET", f"/session/{session}/wait")
        eventually(lambda: pages.rows()[owner].in_flight >= 1 + owners.count(owner), "the poll to wait")
        os.kill(owner, signal.SIGKILL)
        status, _, content = poll.result(10)
        assert (status, content) == (404, b"gone")
        for socket, pid in zip(sockets, owners, strict=True):
            if pid == owner:
                with pytest.raises(ConnectionClosed):
                    socket.recv(10)
                assert socket.close_code == 1012
    pages.wait_ready()


def test_first_requests_at_once(marimo: Service) -> None:
    """A page's WebSocket and POSTs come in on all workers at the same moment, under an id that nobody knows yet: one
    worker has them all.
    """
    connections = marimo.connections()
    for number in range(12):
        session = f"s_at{number:04}"
        sockets = [opened_later(marimo, on) for on in list(connections)[:2]]
        ready = threading.Barrier(len(connections) + len(sockets))

        def post(connection: Connection, session: str = session, ready: threading.Barrier = ready) -> Any:
            ready.wait()
            return json.loads(connection.ask("POST", "/api/own", headers={"Marimo-Session-Id": session})[2])

        def page(sock: Any, session: str = session, ready: threading.Barrier = ready) -> Any:
            ready.wait()
            with sock(f"/ws?session_id={session}") as socket:
                return json.loads(socket.recv(10))

        with ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(post, connection) for connection in connections.values()]
            asked += [pool.submit(page, sock) for sock in sockets]
            found = [one.result(20) for one in asked]
        assert len({one["pid"] for one in found}) == 1, found
        assert sorted(one["n"] for one in found) == list(range(1, len(found) + 1))


def opened_later(service: Service, on: int) -> Any:
    """A connection that worker `on` has accepted: call it with a path to make a WebSocket of it."""
    sock = landing(service, on).http.sock
    assert sock is not None
    return lambda path: connect(f"ws://t{path}", sock=sock)


def test_a_file_that_a_frame_names(marimo: Service) -> None:
    """It lies in the memory of the page's worker: every worker leads there while the page is open."""
    connections = marimo.connections()
    for number, on in enumerate(connections):
        with opened(marimo, on, f"/ws?session_id=s_file{number:02}") as socket:
            path = json.loads(socket.recv(10))["file"].removeprefix(".")
            assert {connection.ask("GET", path)[0] for connection in connections.values()} == {200}
    assert {connection.ask("GET", "/@file/4-nobodys.txt")[0] for connection in connections.values()} == {404}


def test_a_file_of_two_pages(marimo: Service) -> None:
    """The worker that named it first has it for all, and each that names it for itself, also when the first one's page
    is gone, and its file with it.
    """
    connections = marimo.connections()
    on = next(iter(connections))
    with ExitStack() as stack:
        first = stack.enter_context(opened(marimo, on, "/ws?session_id=s_two001&file=same"))
        owner = json.loads(first.recv(10))["pid"]
        others: dict[int, ClientConnection] = {}
        for number in range(2, 9):
            socket = stack.enter_context(opened(marimo, on, f"/ws?session_id=s_two00{number}&file=same"))
            others[json.loads(socket.recv(10))["pid"]] = socket
        others.pop(owner, None)
        assert others
        assert {connection.ask("GET", "/@file/4-same.txt")[0] for connection in connections.values()} == {200}
        first.close()
        for pid in others:
            assert connections[pid].ask("GET", "/@file/4-same.txt")[0] == 200
    eventually(lambda: not claimed(marimo, "@file/4-same.txt"), "the claim to go with the last page")


def test_a_page_comes_back_after_a_death(marimo: Service) -> None:
    """Under its own id, to a new session: its POSTs are refused until its WebSocket is there again."""
    connections = marimo.connections()
    with opened(marimo, next(iter(connections)), "/ws?session_id=s_back00") as socket:
        owner = json.loads(socket.recv(10))["pid"]
        os.kill(owner, signal.SIGKILL)
        with pytest.raises(ConnectionClosed):
            socket.recv(10)
    eventually(lambda: owner not in marimo.rows(), "the death to be seen")
    marimo.wait_ready()
    headers = {"Marimo-Session-Id": "s_back00"}
    assert marimo.connect().ask("POST", "/api/own", headers=headers)[0] == 410
    with opened(marimo, next(iter(marimo.rows())), "/ws?session_id=s_back00") as socket:
        assert json.loads(socket.recv(10))["n"] == 1
        status, _, content = marimo.connect().ask("POST", "/api/own", headers=headers)
        assert (status, json.loads(content)["n"]) == (200, 2)
