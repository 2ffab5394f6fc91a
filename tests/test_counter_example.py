"""The counter example, alone in memory: Gym's contract, and the silent error that gym-supervise prevents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from adapters.helpers import call, fields, reply, request, signed

from examples import counter
from server_adapters.heads import Header
from server_adapters.registry import build

SID = "3b0f5c1e-95b5-4e4c-9a63-31b3c8a6e0aa"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    counter.counts.clear()
    yield
    counter.counts.clear()


class Client:
    """Sends only the last reply's cookie, as Gym's agents do."""

    def __init__(self) -> None:
        self.cookie: bytes | None = None

    def post(self, path: str, body: Any, method: str = "POST") -> tuple[int, Any]:
        """One request; its status and JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, headers, answer = call(counter.app, request(method, path, cookies=self.cookie), content)
        self.cookie = cookie_of(headers)
        return status, json.loads(answer) if answer.startswith(b"{") else answer


def cookie_of(headers: list[Header]) -> bytes | None:
    """The session cookie that a reply sets."""
    lines = [value for key, value in headers if key == b"set-cookie"]
    return lines[-1].split(b";")[0] if lines else None


def test_an_episode_scores() -> None:
    """Seed, count, look, verify; the task's other fields come back with the reward."""
    client = Client()
    assert client.post("/seed_session", {"initial_count": 3}) == (200, {})
    assert client.post("/increment_counter", {"count": 4}) == (200, {"success": True})
    assert client.post("/get_counter_value", {}) == (200, {"count": 7})
    assert client.post("/verify", {"expected_count": 7, "task": "a"}) == (
        200,
        {"expected_count": 7, "task": "a", "reward": 1.0},
    )
    assert client.post("/verify", {"expected_count": 8})[1]["reward"] == 0.0


def test_sessions_count_for_themselves() -> None:
    """And one that this process does not know counts from 0: the silent error."""
    one, two = Client(), Client()
    one.post("/seed_session", {"initial_count": 3})
    two.post("/increment_counter", {"count": 1})
    assert one.post("/get_counter_value", {})[1] == {"count": 3}
    assert two.post("/get_counter_value", {})[1] == {"count": 1}
    counter.counts.clear()
    assert one.post("/get_counter_value", {}) == (200, {"count": 0})


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("POST", "/seed_session/", 307),
        ("POST", "/none", 404),
        ("GET", "/verify", 405),
        ("POST", "/verify", 422),
        ("POST", "/increment_counter", 422),
    ],
)
def test_every_reply_sets_the_cookie(method: str, path: str, status: int) -> None:
    """As Gym's servers do, whatever the status."""
    client = Client()
    assert client.post(path, {}, method)[0] == status
    assert client.cookie is not None
    assert client.cookie.startswith(b"StatefulCounterResourcesServer___counter=")


@pytest.mark.parametrize("body", [b"", b"no", b"[]", b'{"count": "1"}', b'{"count": true}', b"{}"])
def test_a_bad_body_is_refused(body: bytes) -> None:
    """With 422, and nothing is counted."""
    status, answer = Client().post("/increment_counter", body)
    assert status == 422
    assert answer["detail"]
    assert counter.counts == {}


def test_the_adapter_is_built_from_the_example_alone() -> None:
    """The config gives no secret: name and key of the cookie are found in the app, and the ids are its own."""
    document = yaml.safe_load((Path(counter.__file__).parent / "counter.yaml").read_text())
    server = document["servers"]["counter"]
    assert server["app"] == "examples.counter:app"
    adapter = build(server["affinity"], counter.app, server="counter")

    head = request(path="/seed_session")
    reading = adapter.read_body(head, adapter.read(head), b'{"initial_count": 5}')
    assert fields(reading) == {"starts": True, "mints": True}
    minted = request(path="/seed_session", headers=list(adapter.mint(head, SID)))
    status, headers, _ = call(counter.app, minted, b'{"initial_count": 5}')
    assert counter.counts == {SID: 5}
    seen = adapter.reply(head, reading, SID, reply(status, headers=headers))
    assert fields(seen) == {"issued": SID}
    again = request(path="/get_counter_value", cookies=cookie_of(headers))
    assert fields(adapter.read(again)) == {"session": SID, "vouched": True}
    assert json.loads(call(counter.app, again, b"{}")[2]) == {"count": 5}


def test_a_router_takes_the_cookie_of_a_health_check_out() -> None:
    """The app gives every reply a cookie; nobody would hold the session that this one names."""
    adapter = build({"preset": "gym-resources"}, counter.app, server="counter")
    head = request("GET", "/")
    status, headers, _ = call(counter.app, head)
    seen = adapter.reply(head, adapter.read(head), None, reply(status, headers=headers))
    assert seen.headers is not None
    assert cookie_of(list(seen.headers)) is None
    assert cookie_of(headers) is not None


def test_a_typed_seed_and_its_close_name_one_session() -> None:
    """The id of the body becomes the app's own, merged into whatever the cookie held."""
    adapter = build({"preset": "gym-resources"}, counter.app, server="counter")
    name = counter.SESSION_NAME
    body = json.dumps({"resources_session_id": SID, "initial_count": 2}).encode()
    head = request(path="/seed_session", cookies=f"{name}={signed({'theme': 'dark'}, secret=name)}".encode())
    reading = adapter.read_body(head, adapter.read(head), body)
    _, headers, _ = call(counter.app, request(path=head.path, headers=list(adapter.mint(head, SID))), body)
    assert counter.counts == {SID: 2}
    close = request(path="/close_session", cookies=cookie_of(headers))
    assert fields(adapter.read_body(close, adapter.read(close), body)) == {
        "session": SID,
        "vouched": True,
        "typed": True,
        "ends": True,
    }
    assert fields(adapter.reply(head, reading, SID, reply(200, headers=headers))) == {"issued": SID}
