"""One access line for each request, on the worker that received it, with the session and the worker that served it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
import websockets
from whole.apps import NAME
from whole.harness import Connection, Service, eventually

Made = Callable[..., Service]


@pytest.fixture(scope="module")
def gym(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of three workers that logs JSON."""
    service = Service(
        tmp_path_factory.mktemp("gym"), "whole.apps:gym", workers=3, health="/healthz", log={"format": "json"}
    )
    service.start()
    yield service
    assert service.stop() == 0, service.log.read_text()
    assert service.cleanup() == [], service.log.read_text()


def entries(service: Service) -> list[dict[str, Any]]:
    """The whole log; what Python itself writes to stderr is no object."""
    lines = service.log.read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def line_of(service: Service, path: str) -> dict[str, Any]:
    """The one line of a request, told by a path of its own; whatever else names the path is a second one."""
    found: list[dict[str, Any]] = eventually(
        lambda: [entry for entry in entries(service) if entry.get("path") == path], f"a line for {path}"
    )
    assert len(found) == 1
    assert found[0]["logger"] == "uvicorn.access"
    said = [line for line in service.log.read_text().splitlines() if path in line]
    assert len([line for line in said if "HTTP/1" in line or "WebSocket" in line]) == 1, said
    return found[0]


def index_of(service: Service, pid: int) -> int:
    """The worker's index."""
    return int(service.rows()[pid].index)


def begin(service: Service) -> tuple[dict[str, str], str, int]:
    """Start a session: headers that name it, its id, its owner's pid."""
    status, headers, body = service.connect().ask("POST", "/seed_session", body={"n": 1})
    assert status == 200
    seen = json.loads(body)
    return {"cookie": headers["set-cookie"].split(";")[0]}, seen["session"], seen["pid"]


def unique(path: str) -> str:
    """A path that no other request has."""
    return f"{path}?{uuid4().hex}"


def test_each_request_has_one_line_where_it_came_in(gym: Service) -> None:
    """From every worker to one owner: the line is the acceptor's, names both, and never the whole id."""
    headers, session, owner = begin(gym)
    for pid, connection in gym.connections().items():
        path = unique("/show")
        assert connection.ask("POST", path, headers=headers)[0] == 200
        line = line_of(gym, path)
        host, port = connection.http.sock.getsockname()
        assert line["pid"] == pid
        assert line["role"] == f"app.{line['worker']}"
        assert (line["worker"], line["owner"]) == (index_of(gym, pid), index_of(gym, owner))
        assert (line["client"], line["method"], line["status"]) == (f"{host}:{port}", "POST", 200)
        assert (line["session"], line["server"], line["level"]) == (session[:8], "app", "info")
        assert (line["refused"], line["cut"]) == (None, False)
        assert line["duration_ms"] > 0
        assert line["message"] == f'{host}:{port} - "POST {path} HTTP/1.1" 200'
    assert session not in gym.log.read_text()


def test_a_new_session_is_named_wherever_it_is_placed(gym: Service) -> None:
    """The line of a start has the id that its reply gives out."""
    connection = gym.connect()
    seen = []
    for _ in range(6):
        path = unique("/seed_session")
        _, _, body = connection.ask("POST", path, body={"n": 1})
        line = line_of(gym, path)
        assert line["session"] == json.loads(body)["session"][:8]
        assert line["owner"] == index_of(gym, json.loads(body)["pid"])
        seen.append(line["owner"] == line["worker"])
    assert set(seen) == {True, False}


def test_an_app_that_raises_is_a_500_here_and_there(gym: Service) -> None:
    """The server's reply in the app's place has its line too, whichever worker ran the app."""
    headers, _, owner = begin(gym)
    for connection in gym.connections().values():
        path = unique("/fail")
        assert connection.ask("POST", path, headers=headers)[0] == 500
        line = line_of(gym, path)
        assert (line["status"], line["owner"], line["cut"]) == (500, index_of(gym, owner), False)


def test_what_has_no_session_was_served_here_or_by_nobody(gym: Service) -> None:
    """The app's reply is this worker's; the health route is the router's own."""
    connection = gym.connect()
    for path, status, own in (
        (unique("/whoami"), 200, True),
        (unique("/nowhere"), 404, True),
        ("/healthz", 200, False),
    ):
        assert connection.ask("GET", path)[0] == status
        line = line_of(gym, path)
        assert (line["status"], line["session"]) == (status, None)
        assert line["owner"] == (line["worker"] if own else None)


def test_a_refusal_says_its_kind(gym: Service) -> None:
    """A reply of the router's own: served by nobody. Its reason has its own line, the request has one."""
    headers, session, owner = begin(gym)
    os.kill(owner, signal.SIGKILL)
    eventually(lambda: owner not in gym.rows(), "its death")
    gym.wait_ready()
    path = unique("/show")
    assert gym.connect().ask("POST", path, headers=headers)[0] == 410
    line = line_of(gym, path)
    assert (line["status"], line["refused"], line["owner"]) == (410, "session_gone", None)
    assert line["session"] == session[:8]


def test_a_reply_that_was_cut_says_so(gym: Service) -> None:
    """The owner dies in the middle of a stream."""
    headers, _, owner = begin(gym)
    index = index_of(gym, owner)
    connection = next(one for pid, one in gym.connections().items() if pid != owner)
    path = f"/stream?n=10000&size=10&pause=0.01&{uuid4().hex}"
    connection.http.request("GET", path, headers=headers)
    reply = connection.http.getresponse()
    assert reply.read(10) == b"x" * 10
    os.kill(owner, signal.SIGKILL)
    line = line_of(gym, path)
    assert (line["status"], line["cut"], line["owner"]) == (200, True, index)
    gym.wait_ready()


def test_a_client_that_leaves_before_its_reply_is_a_499(gym: Service) -> None:
    """In the middle of the body that the router reads for its id."""
    path = unique("/seed_session")
    connection: Connection = gym.connect()
    connection.http.putrequest("POST", path)
    connection.http.putheader("content-type", "application/json")
    connection.http.putheader("content-length", "100")
    connection.http.endheaders()
    connection.http.send(b'{"session_id": "')
    eventually(lambda: any(row.in_flight for row in gym.rows().values()), "the request in flight")
    connection.http.close()
    line = line_of(gym, path)
    assert (line["status"], line["owner"], line["cut"]) == (499, None, False)


def test_a_websocket_has_one_line_too(gym: Service) -> None:
    """At its end; uvicorn's own, which go to its error log, are dropped."""
    headers, session, owner = begin(gym)
    path = unique("/ws")

    async def connect() -> None:
        async with websockets.connect(f"ws://127.0.0.1:{gym.port}{path}", additional_headers=headers) as ws:
            assert int(await ws.recv()) == owner

    asyncio.run(connect())
    line = line_of(gym, path)
    assert (line["method"], line["status"], line["owner"]) == ("WebSocket", 101, index_of(gym, owner))
    assert line["session"] == session[:8]


def test_a_session_that_the_app_names_is_in_its_line(service: Made) -> None:
    """An id that is only in the reply's cookie, also where another worker gave it out."""
    affinity = {"preset": "starlette-session", "field": "user", "session_starts": ["POST /login"]}
    made = service("whole.preset_apps:browser", workers=2, affinity=affinity, log={"format": "json"}).start()
    connection = made.connect()
    seen = set()
    for _ in range(4):
        path = unique("/login")
        _, _, body = connection.ask("POST", path)
        line = line_of(made, path)
        assert line["session"] == json.loads(body)["session"][:8]
        seen.add(line["owner"] == line["worker"])
    assert seen == {True, False}
    assert made.stop() == 0


def test_an_id_in_the_address_is_cut_as_well(service: Made) -> None:
    """What a client needs to take a session over is not written down."""
    made = service(
        "whole.preset_apps:custom",
        workers=2,
        affinity={
            "preset": "custom",
            "sources": [{"query": "sid"}, {"path": "^/path/(?P<session>[^/]+)"}],
            "unknown": "claim",
        },
        log={"format": "json"},
    ).start()
    session = "a key+" + uuid4().hex
    named = quote(session, safe="")
    connection = made.connect()
    _, _, body = connection.ask("GET", f"/query?sid={named}&x=1")
    line = eventually(lambda: [one for one in entries(made) if "/query" in one.get("path", "")], "its line")[0]
    assert line["path"] == "/query?sid=a key+" + session[6:8] + "...&x=1"
    os.kill(json.loads(body)["pid"], signal.SIGKILL)
    eventually(lambda: json.loads(body)["pid"] not in made.rows(), "its owner's death")
    made.wait_ready()
    assert made.connect().ask("GET", f"/path/{named}")[0] == 410
    line = eventually(lambda: [one for one in entries(made) if one.get("refused")], "its refusal's line")[0]
    assert line["path"] == "/path/a key+" + session[6:8] + "..."
    assert made.stop() == 0
    text = made.log.read_text()
    assert "session_gone: GET /path/a key+" + session[6:8] + "..., session a key+" in text
    assert session[9:] not in text


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"http": "h11"}, 1),
        ({"access_log": False}, 0),
        ({"log_level": "warning"}, 0),
        ({"log_level": "info", "use_colors": True}, 1),
    ],
)
def test_uvicorns_settings_are_heard(service: Made, options: dict[str, Any], expected: int) -> None:
    """One line with either protocol, none by access_log or log_level; our own lines keep the config's level."""
    made = service("whole.apps:gym", workers=1, uvicorn=options, log={"level": "debug"}).start()
    path = unique("/whoami")
    assert made.connect().ask("GET", path)[0] == 200
    assert made.stop() == 0
    text = made.log.read_text()
    assert text.count(path) == expected, text
    assert "worker 0 is ready" in text
    if expected:
        line = next(line for line in text.splitlines() if path in line)
        assert (" \x1b[32mINFO    \x1b[0m app.0[" in line) is ("use_colors" in options)
        assert "\x1b" not in next(line for line in text.splitlines() if "supervisor[" in line)
        assert line.split(" in ")[0].endswith(f'"GET {path} HTTP/1.1" 200')
        assert line.endswith(" session=- worker=0 owner=0")
    assert NAME not in text
