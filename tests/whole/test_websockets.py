"""WebSockets on a running service, wherever they land: on real workers, with a real client.

They are relayed here, as they are wherever their connection cannot be handed over: see test_handover.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from socket import SHUT_RDWR
from typing import Any
from uuid import uuid4

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from whole.handing import NEVER
from whole.harness import Connection, Service, eventually

AFFINITY = {
    "preset": "custom",
    "sources": [{"cookie": "sid"}, {"query": "sid"}],
    "starts": ["WEBSOCKET /start"],
    "unknown": "claim",
}


RELAYED = {"HANDING": NEVER}

SPARE: dict[Service, dict[int, list[Connection]]] = {}
"""Connections that another worker has accepted than the one that was wanted."""


def landing(service: Service, on: int) -> Connection:
    """A connection that worker `on` has accepted, served no more than a request."""
    spare = SPARE.setdefault(service, {})

    def more() -> Connection | None:
        if not spare.get(on):
            connection = service.connect()
            spare.setdefault(int(connection.ask("GET", "/whoami")[2]), []).append(connection)
        return spare[on].pop() if spare.get(on) else None

    found: Connection = eventually(more, f"a connection to {on}")
    return found


def opened(service: Service, on: int, path: str, **options: Any) -> ClientConnection:
    """A WebSocket on a connection that worker `on` has accepted: a request is served on it before."""
    sock = landing(service, on).http.sock
    assert sock is not None
    socket: ClientConnection = connect(f"ws://t{path}", sock=sock, max_size=None, **options)
    return socket


def said(socket: ClientConnection) -> tuple[int, str, int]:
    """The app's first words: its pid, the session and how often it was asked for."""
    pid, session, count = json.loads(socket.recv())
    return pid, session, count


def header(socket: ClientConnection, name: str) -> str:
    """One of the accept's headers."""
    assert socket.response is not None
    return socket.response.headers[name]


def closed(socket: ClientConnection) -> tuple[int | None, str | None]:
    """How the server closes it."""
    with pytest.raises(ConnectionClosed):
        while True:
            socket.recv(timeout=30)
    return socket.close_code, socket.close_reason


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service with three workers for the tests that kill none."""
    service = Service(
        tmp_path_factory.mktemp("websockets"), "whole.websocket_app:app", workers=3, affinity=AFFINITY, env=RELAYED
    ).start()
    yield service
    assert service.stop() == 0, service.log.read_text()
    assert service.cleanup() == [], service.log.read_text()


def begin(service: Service) -> tuple[str, int, list[int]]:
    """A session, its owner and the other workers."""
    with opened(service, next(iter(service.rows())), f"/start?give={uuid4().hex}") as socket:
        owner, session, count = said(socket)
        assert count == 1
        assert f"sid={session}" in header(socket, "set-cookie")
    return session, owner, [pid for pid in service.rows() if pid != owner]


def test_every_worker_serves_the_session_through_its_owner(shared: Service) -> None:
    """One state, whichever worker a WebSocket lands on, with all that it has sent and is sent."""
    session, owner, others = begin(shared)
    for number, pid in enumerate([owner, *others], 2):
        with opened(shared, pid, f"/echo?sid={session}", subprotocols=["soap", "wamp"]) as socket:
            assert socket.subprotocol == "wamp"
            assert header(socket, "x-pid") == str(owner)
            assert said(socket) == (owner, session, number)
            for data in ("é", b"\xff\x00", "", "x" * 3_000_000, os.urandom(2_000_000), ["in ", "pieces"]):
                socket.send(data)
                assert socket.recv() == ("in pieces" if isinstance(data, list) else data)
            socket.send("close 4321 because")
            assert closed(socket) == (4321, "because")


def test_it_counts_as_one_request_as_long_as_it_lives(shared: Service) -> None:
    """On both workers; then on none."""
    session, owner, others = begin(shared)
    with opened(shared, others[0], f"/echo?sid={session}") as socket:
        said(socket)
        assert (shared.rows()[owner].in_flight, shared.rows()[others[0]].in_flight) == (1, 1)
    eventually(lambda: not any(row.in_flight for row in shared.rows().values()), "its end on both")


def test_the_app_hears_how_its_client_left(shared: Service) -> None:
    """Code and reason of a close, and what the server makes of a connection that breaks off."""
    session, owner, others = begin(shared)
    for code, expected in ((4000, [session, 4000, "bye"]), (None, [session, 1005, None])):
        with opened(shared, others[0], f"/echo?sid={session}") as socket:
            said(socket)
            if code is None:
                socket.socket.shutdown(SHUT_RDWR)
            else:
                socket.close(code, "bye")
        connection = landing(shared, owner)
        eventually(lambda: expected in json.loads(connection.ask("GET", "/heard")[2]), "the app to hear")


def test_an_app_that_raises(shared: Service) -> None:
    """Its client's connection breaks off, and the traceback is logged once."""
    session, _, others = begin(shared)
    before = shared.log.read_text().count("RuntimeError: asked for")
    with opened(shared, others[0], f"/echo?sid={session}") as socket:
        said(socket)
        socket.send("raise")
        assert closed(socket) == (1006, "")
    eventually(lambda: shared.log.read_text().count("RuntimeError: asked for") == before + 1, "the traceback")


def test_starts_are_placed(shared: Service) -> None:
    """WebSockets that start sessions all land on one worker, and their sessions on all of them evenly."""
    on = next(iter(shared.rows()))
    before = Counter({pid: row.sessions for pid, row in shared.rows().items()})
    with ExitStack() as stack:
        for _ in range(9):
            socket = stack.enter_context(opened(shared, on, "/start"))
            pid, session, count = said(socket)
            assert count == 1
            with shared.segment() as segment:
                claim = segment.table.lookup(session.encode())
            assert claim is not None
            assert shared.rows()[pid].incarnation == claim.incarnation
    after = Counter({pid: row.sessions for pid, row in shared.rows().items()})
    assert (after - before).total() == 9
    assert max(after.values()) - min(after.values()) <= 1


@pytest.mark.parametrize("path", ["/start", "/deny"])
def test_an_id_that_another_worker_holds_is_not_given_out(shared: Service, path: str) -> None:
    """The accept, or the denial, is withheld, and the reason sent in its place."""
    session, owner, others = begin(shared)
    with opened(shared, owner, "/start"), opened(shared, owner, "/start"):  # so that the next one is not the owner's
        for on in others:
            with (
                pytest.raises(InvalidStatus) as refused,
                opened(shared, on, f"{path}?sid={uuid4().hex}&give={session}"),
            ):
                pass
            assert error_status(refused.value) == 409
            assert json.loads(refused.value.response.body or b"")["error"] == "session_conflict"


def error_status(error: InvalidStatus) -> int:
    return error.response.status_code


def test_denials_and_refusals(shared: Service) -> None:
    """An app that does not accept: status, headers and body, or uvicorn's 403."""
    session, owner, others = begin(shared)
    for on in (owner, *others):
        with pytest.raises(InvalidStatus) as denied:
            opened(shared, on, f"/deny?sid={session}").__enter__()
        assert (error_status(denied.value), denied.value.response.body) == (418, b"teapot")
        assert denied.value.response.headers["x-pid"] == str(owner)
        with pytest.raises(InvalidStatus) as refused:
            opened(shared, on, f"/refuse?sid={session}").__enter__()
        assert error_status(refused.value) == 403


def test_the_owner_is_killed(service: Any) -> None:
    """Open WebSockets close with 1012; from then on there is the gone reply, through every worker."""
    running = service("whole.websocket_app:app", workers=3, affinity=AFFINITY, env=RELAYED).start()
    session, owner, others = begin(running)
    with opened(running, others[0], f"/echo?sid={session}") as socket:
        said(socket)
        os.kill(owner, signal.SIGKILL)
        assert closed(socket) == (1012, "session_gone")
    for on in others:
        with pytest.raises(InvalidStatus) as gone:
            opened(running, on, f"/echo?sid={session}").__enter__()
        assert error_status(gone.value) == 410
        body = json.loads(gone.value.response.body or b"")
        assert (body["error"], body["session"]) == ("session_gone", session)
    running.wait_ready()
    assert running.stop() == 0


@pytest.mark.parametrize("how", ["SIGTERM", "drain"])
def test_the_owner_stops(service: Any, how: str) -> None:
    """SIGTERM to it alone, or the end of its drain: relayed WebSockets close with 1012 as its own do."""
    timeouts = {"graceful_seconds": 60, "drain_seconds": 1}
    running = service("whole.websocket_app:app", workers=2, affinity=AFFINITY, env=RELAYED, timeouts=timeouts).start()
    session, owner, others = begin(running)
    path = f"/echo?sid={session}"
    with opened(running, others[0], path) as relayed, opened(running, owner, path) as own:
        said(relayed)
        said(own)
        if how == "drain":
            assert running.run("drain", str(running.rows()[owner].index)).returncode == 0
        else:
            os.kill(owner, signal.SIGTERM)
        assert closed(relayed) == closed(own) == (1012, "")
    eventually(lambda: owner not in running.rows(), "its end", 10)
    running.wait_ready()
    assert running.stop() == 0
