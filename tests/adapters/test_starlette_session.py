"""Presets starlette-session and none."""

from __future__ import annotations

from typing import Any

import pytest
from adapters.helpers import CLEARED, NAME, OTHER, SID, cookie, fields, make, read, reply, request, set_cookie

from server_adapters.adapter import STATUS_OF, Reading, ReplyKind
from server_adapters.heads import RequestHead
from server_adapters.registry import build

ROUTES = {
    "session_starts": ["/login"],
    "session_ends": ["GET,POST /logout"],
    "stateless_routes": ["/health", "GET /ready"],
}
NAMED = {"session": SID, "vouched": True}

ROWS: list[tuple[str, RequestHead, dict[str, Any]]] = [
    ("a request with the cookie", request("GET", "/", cookies=cookie()), NAMED),
    ("a websocket with the cookie", request("GET", "/ws", cookies=cookie(), websocket=True), NAMED),
    ("a request without", request(), {}),
    ("a cookie without the field", request(cookies=cookie(None, basket=1)), {}),
    ("a bad signature", request(cookies=cookie()[:-1]), {}),
    ("a number is an id", request(cookies=cookie(7)), {"session": "7", "vouched": True}),  # type: ignore[arg-type]
    ("a start without an id", request(path="/login"), {"starts": True}),
    ("a start with one", request(path="/login", cookies=cookie()), {**NAMED, "starts": True}),
    ("an end", request("GET", "/logout", cookies=cookie()), {**NAMED, "ends": True}),
    ("a stateless route", request("HEAD", "/health"), {"stateless": True}),
    ("a stateless route with an id", request("GET", "/ready", cookies=cookie()), {"session": SID, "stateless": True}),
    ("Gym's routes mean nothing here", request(path="/seed_session", cookies=cookie()), NAMED),
]


@pytest.mark.parametrize(("head", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_what_a_request_says(head: RequestHead, expected: dict[str, Any]) -> None:
    """The app makes the ids: none is minted, and a signature vouches for each."""
    adapter = make("starlette-session", field="session_id", **ROUTES)
    assert fields(read(adapter, head)) == expected


@pytest.mark.parametrize(
    ("reading", "session", "line", "expected", "taken_out"),
    [
        (Reading(), None, set_cookie({"session_id": SID}), {"issued": SID}, False),
        (Reading(SID), SID, set_cookie({"session_id": OTHER}), {"issued": OTHER}, False),
        (Reading(SID), SID, CLEARED, {"expired": True}, False),
        (Reading(SID), SID, "other=1", {}, False),
        (Reading(), None, set_cookie({"flash": "hello"}), {"expired": True}, False),
        (Reading(stateless=True), None, set_cookie({"session_id": SID}), {}, True),
        (Reading(SID, stateless=True), SID, set_cookie({"session_id": SID}), {"issued": SID}, False),
    ],
)
def test_what_a_reply_says(
    reading: Reading, session: str | None, line: str, expected: dict[str, Any], taken_out: bool
) -> None:
    """The id that the app has just given out, also in the reply to a GET."""
    seen = fields(
        make("starlette-session", field="session_id").reply(request("GET"), reading, session, reply(200, line))
    )
    assert seen.pop("headers", None) == (reply().headers if taken_out else None)
    assert seen == expected


@pytest.mark.parametrize("kind", list(STATUS_OF))
def test_only_a_lost_session_loses_its_cookie(kind: ReplyKind) -> None:
    """A browser with the cookie of a lost session would be locked out; one that meets a full table would not."""
    adapter = make("starlette-session", field="session_id")
    head = request(cookies=cookie())
    own = adapter.own_reply(kind, head, adapter.read(head), {})
    lines = [value.decode() for key, value in own.headers if key == b"set-cookie"]
    assert lines == ([CLEARED] if kind == "session_gone" else [])


def test_the_life_of_a_claim() -> None:
    """As long as the cookie lives, unless starts and ends are given."""
    life = make("starlette-session", field="id").life
    assert (life.explicit, life.idle_seconds, life.kept_by_reply) == (False, 1209600.0, False)
    life = make("starlette-session", field="id", max_age=60, session_starts=["/login"]).life
    assert (life.explicit, life.idle_seconds) == (True, 60.0)
    assert make("starlette-session", field="id", max_age=60, idle_seconds=5.0).life.idle_seconds == 5.0


def test_none_sees_nothing() -> None:
    """A server without per-session state: every request runs where it lands, and its reply is left alone."""
    adapter = build({"preset": "none"}, None, server="model")
    head = request(cookies=cookie())
    assert not adapter.has_sessions
    assert fields(adapter.read(head)) == fields(adapter.read_body(head, Reading(), b"{}")) == {}
    assert fields(adapter.reply(head, Reading(), None, reply(200, f"{NAME}=x"))) == {}
    assert adapter.mint(head, SID) == head.headers
    assert not adapter.read_reply_body(head, Reading(), reply(), b'{"terminated": true}')
    assert adapter.own_reply("overloaded", head, Reading(), {}).status == 503
