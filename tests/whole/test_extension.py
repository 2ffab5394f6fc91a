"""An app that says itself what becomes of its sessions' claims, on a running service, from whichever worker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from whole.harness import Connection, Service, eventually

WINDOW = 0.3


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The app on three workers."""
    affinity = {"preset": "gym-resources", "session_close_retry_window_seconds": WINDOW}
    running = Service(tmp_path_factory.mktemp("claims"), "whole.claim_app:app", workers=3, affinity=affinity).start()
    yield running
    assert running.stop() == 0, running.log.read_text()
    assert running.cleanup() == []


@pytest.fixture(scope="module")
def connections(service: Service) -> list[Connection]:
    """One to each worker."""
    return list(service.connections().values())


def held(service: Service, session: str) -> bool:
    """Whether somebody holds the session."""
    with service.segment() as segment:
        return segment.table.lookup(session.encode()) is not None


def ask(connection: Connection, path: str, cookie: str | None = None) -> tuple[dict[str, Any], str]:
    """The reply, and its cookie."""
    status, headers, content = connection.ask("POST", path, headers={} if cookie is None else {"cookie": cookie})
    assert status == 200, content
    return json.loads(content), headers["set-cookie"].split(";")[0]


def windows_pass(service: Service, connections: list[Connection]) -> None:
    """A session is closed on each worker; when their claims are gone, so is what was to end before them."""
    sessions = [ask(connection, "/say/close")[0]["session"] for connection in connections]
    eventually(lambda: not any(held(service, session) for session in sessions), "closed sessions' claims to end")


def test_a_session_that_the_app_holds(service: Service, connections: list[Connection]) -> None:
    """It outlives one that was closed later, wherever it was asked for, until the app lets it go."""
    reply, cookie = ask(connections[0], "/say/hold")
    session = reply["session"]
    for connection in connections:
        again, cookie = ask(connection, "/say/hold", cookie)
        assert again == reply
    windows_pass(service, connections)
    assert held(service, session)
    assert ask(connections[1], "/say/release", cookie)[0] == reply
    eventually(lambda: not held(service, session), "the released session's claim to be gone")


def test_the_app_goes_before_its_routes(service: Service, connections: list[Connection]) -> None:
    """/verify ends a session, but this app holds it there."""
    reply, cookie = ask(connections[0], "/say/hold")
    assert ask(connections[1], "/verify", cookie)[0] == reply
    windows_pass(service, connections)
    assert held(service, reply["session"])
    ask(connections[2], "/say/close", cookie)
    eventually(lambda: not held(service, reply["session"]), "the closed session's claim to end")


@pytest.mark.parametrize("word", ["release", "close"])
def test_what_is_said_after_the_request(service: Service, connections: list[Connection], word: str) -> None:
    """A task of the app's own may say it when no request is there any more."""
    reply, cookie = ask(connections[0], f"/later/{word}")
    windows_pass(service, connections)
    assert held(service, reply["session"])
    status, _, _ = connections[1].ask("POST", "/now", headers={"cookie": cookie})
    assert status == 200
    eventually(lambda: not held(service, reply["session"]), "the claim to end")


def test_the_app_hears_of_the_end(service: Service, connections: list[Connection]) -> None:
    """In the worker that held the claim, once."""
    reply, _ = ask(connections[0], "/say/close")
    eventually(lambda: not held(service, reply["session"]), "the claim to end")

    def told() -> list[int]:
        return [json.loads(c.ask("GET", "/ended")[2]).count(reply["session"]) for c in connections]

    assert sorted(told()) == [0, 0, 1]


def test_a_request_without_a_session(connections: list[Connection]) -> None:
    """The object is there; it names no session, and what is said to it has no effect."""
    status, headers, content = connections[0].ask("GET", "/nothing")
    assert (status, json.loads(content)) == (200, None)
    assert headers["set-cookie"] is None
