"""The presets on a running service: each kind of id, from every worker."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from whole.harness import Connection, Service, eventually


@pytest.fixture(scope="module")
def custom(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service with every source of `custom`."""
    affinity = {
        "preset": "custom",
        "sources": [
            {"header": "x-session"},
            {"query": "sid"},
            {"path": "^/path/(?P<session>[^/]+)"},
            {"json": {"field": "sid", "routes": ["POST /json"]}},
            {"cookie": "gsv"},
        ],
        "replies": [{"response_header": "x-session"}],
        "starts": ["POST /header"],
        "ends": ["DELETE /header"],
        "unknown": "claim",
        "session_close_retry_window_seconds": 0.5,
        "gone": {"status": 404, "body": {"code": -32600, "message": "Session not found"}},
    }
    service = Service(tmp_path_factory.mktemp("custom"), "whole.preset_apps:custom", affinity=affinity)
    service.start()
    yield service
    assert service.stop() == 0
    assert service.cleanup() == [], service.log.read_text()


SOURCES: list[tuple[str, str, Any, dict[str, str]]] = [
    ("GET", "/query?sid=q-1", None, {}),
    ("GET", "/path/p-1", None, {}),
    ("POST", "/json", {"sid": "j-1"}, {"content-type": "application/json"}),
    ("POST", "/header", None, {"x-session": "h-1"}),
    ("GET", "/cookie", None, {"cookie": "gsv=c-1"}),
]


@pytest.mark.parametrize(("method", "path", "body", "headers"), SOURCES)
def test_a_client_made_id_has_one_owner(
    custom: Service, method: str, path: str, body: Any, headers: dict[str, str]
) -> None:
    """Whatever carries the id, the first worker that sees it owns it, and every other relays to it."""
    seen = []
    for connection in custom.connections().values():
        status, _, content = connection.ask(method, path, body=body, headers=headers)
        assert status == 200
        seen.append(json.loads(content))
    assert len({reply["pid"] for reply in seen}) == 1
    assert sorted(reply["n"] for reply in seen) == [1, 2, 3, 4]


def test_an_id_given_out_in_a_reply_header(custom: Service) -> None:
    """The id is claimed before its client learns it, and an end lets it go after the window."""
    status, headers, content = custom.connect().ask("POST", "/header")
    assert status == 200
    session, owner = headers["x-session"], json.loads(content)["pid"]
    connections = custom.connections()
    for n, connection in enumerate(connections.values(), 2):
        _, _, content = connection.ask("GET", "/header", headers={"x-session": session})
        assert json.loads(content) == {"pid": owner, "n": n, "session": session}
    connections[owner].ask("DELETE", "/header", headers={"x-session": session})

    def gone() -> bool:
        with custom.segment() as segment:
            return segment.table.lookup(session.encode()) is None

    eventually(gone, "the ended session's claim to go")


def test_sources_that_disagree_are_refused(custom: Service) -> None:
    """Two different ids in one request: 409, and the app sees nothing."""
    status, _, content = custom.connect().ask("GET", "/query?sid=a", headers={"x-session": "b"})
    assert (status, json.loads(content)["error"]) == (409, "session_conflict")


def test_the_gone_reply_is_the_configs(custom: Service) -> None:
    """A dead owner's sessions get the status and body that the config gives."""
    connection = custom.connect()
    _, _, content = connection.ask("GET", "/query?sid=dies")
    owner = json.loads(content)["pid"]
    os.kill(owner, signal.SIGKILL)
    eventually(lambda: owner not in custom.rows(), "the death to be seen")
    custom.wait_ready()
    for other in custom.connections().values():
        status, _, content = other.ask("GET", "/query?sid=dies")
        assert (status, json.loads(content)) == (404, {"code": -32600, "message": "Session not found"})


def test_a_cookie_of_the_routers_own(service: Callable[..., Service]) -> None:
    """An app without ids gets one for each client: the cookie is set once, and its owner serves it."""
    affinity = {"preset": "custom", "sources": [{"cookie": "gsv"}], "replies": [{"issue_cookie": "gsv"}]}
    running = service("whole.preset_apps:custom", affinity=affinity).start()
    status, headers, content = running.connect().ask("GET", "/cookie")
    assert (status, json.loads(content)["n"]) == (200, 1)
    cookie = headers["set-cookie"].split(";")[0]
    owner = json.loads(content)["pid"]
    for n, connection in enumerate(running.connections().values(), 2):
        _, headers, content = connection.ask("GET", "/cookie", headers={"cookie": cookie})
        assert json.loads(content) == {"pid": owner, "n": n, "session": cookie.split("=")[1]}
        assert headers["set-cookie"] is None
    assert running.stop() == 0


def test_starlette_session(service: Callable[..., Service]) -> None:
    """Log in once: the app's id is claimed where it was made; a log-out ends it; a death expires the cookie."""
    affinity = {"preset": "starlette-session", "field": "user"}
    running = service("whole.preset_apps:browser", affinity=affinity).start()

    def log_in() -> tuple[str, int]:
        _, headers, content = running.connect().ask("POST", "/login")
        return headers["set-cookie"].split(";")[0], json.loads(content)["pid"]

    cookie, owner = log_in()
    connections = running.connections()
    for n, connection in enumerate(connections.values(), 2):
        _, _, content = connection.ask("GET", "/me", headers={"cookie": cookie})
        assert (json.loads(content)["pid"], json.loads(content)["n"]) == (owner, n)
    other, victim = log_in()
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: victim not in running.rows(), "the death to be seen")
    survivor: Connection = next(connection for pid, connection in connections.items() if pid != victim)
    status, headers, content = survivor.ask("GET", "/me", headers={"cookie": other})
    assert (status, json.loads(content)["error"]) == (410, "session_gone")
    assert headers["set-cookie"].startswith("sess=null;")
    assert "1970" in headers["set-cookie"]
    assert running.stop() == 0


def test_none(service: Callable[..., Service]) -> None:
    """Without sessions every request runs where it lands, with its own worker's lifespan state; no private socket."""
    running = service("whole.preset_apps:plain", affinity={"preset": "none"}, workers=3).start()
    for pid, connection in running.connections().items():
        for _ in range(3):
            assert int(connection.ask("POST", "/x", headers={"cookie": "a=b"})[2]) == pid
    assert [path.name for path in running.runtime_dir.iterdir() if path.is_socket()] == ["control.sock"]
    assert running.stop() == 0


def test_one_worker(service: Callable[..., Service]) -> None:
    """One worker needs no affinity, no private socket and no claims."""
    running = service("whole.apps:gym", workers=1).start()
    connection = running.connect()
    _, headers, _ = connection.ask("POST", "/seed_session", body={"n": 1})
    cookie = headers["set-cookie"].split(";")[0]
    _, _, content = running.connect().ask("POST", "/show", headers={"cookie": cookie})
    assert json.loads(content)["state"] == {"n": 1}
    assert json.loads(running.run("claims", "--json").stdout) == []
    assert [path.name for path in running.runtime_dir.iterdir() if path.is_socket()] == ["control.sock"]
    status = json.loads(running.run("status", "--json").stdout)
    assert status["servers"]["app"]["workers"][0]["sessions"] == 1
    assert running.stop() == 0
