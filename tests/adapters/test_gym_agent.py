"""Preset gym-agent: agent sessions, by body and by cookie."""

from __future__ import annotations

import json
from typing import Any

import pytest
from adapters.helpers import (
    NAME,
    OTHER,
    SID,
    cookie,
    fields,
    make,
    read,
    reply,
    request,
    set_cookie,
    signed,
)

from server_adapters import cookies
from server_adapters.adapter import Reading
from server_adapters.heads import RequestHead


def agent_cookie(session: str = SID, **extra: Any) -> bytes:
    """A cookie that Gym's middleware and the agent's seed have both written to."""
    return cookie("an-id-of-the-middleware", agent_session_id=session, **extra)


NAMED = {"session": SID, "vouched": True}
TYPED = {**NAMED, "typed": True}
SEED, CLOSE = "/v1/agent_sessions", "/v1/agent_sessions/close"
CAPTURE = "/training-token-capture"
BODY = json.dumps({"agent_session_id": SID, "task": {}}).encode()
STARTED, ENDED = {**TYPED, "starts": True, "mints": True}, {**TYPED, "ends": True, "mints": True}
TWO_IDS = {"conflict": (f"cookie {NAME}", "body agent_session_id")}

ROWS: list[tuple[str, RequestHead, bytes, dict[str, Any]]] = [
    ("any request with the cookie", request(path="/v1/responses", cookies=agent_cookie()), b"", NAMED),
    ("a GET with the cookie", request("GET", "/", cookies=agent_cookie()), b"", NAMED),
    ("a quoted cookie", request(cookies=f'{NAME}="{signed({"agent_session_id": SID})}"'.encode()), b"", NAMED),
    ("a doubled cookie: the last wins", request(cookies=agent_cookie(OTHER) + b";" + agent_cookie()), b"", NAMED),
    ("an old cookie with a worker id in it", request(cookies=agent_cookie(worker=1)), b"", NAMED),
    ("the middleware's own id is no agent session", request(path="/run", cookies=cookie()), b"", {}),
    ("an id-less POST runs where it lands", request(path="/run"), b"", {}),
    ("an id-less GET", request("GET", "/"), b"", {}),
    ("a bad signature", request(cookies=agent_cookie()[:-1]), b"", {}),
    ("the seed", request(path=SEED), BODY, STARTED),
    ("the close", request(path=CLOSE), BODY, ENDED),
    ("the close with its cookie", request(path=CLOSE, cookies=agent_cookie()), BODY, {**TYPED, "ends": True}),
    ("the seed after requests without a session", request(path=SEED, cookies=cookie()), BODY, STARTED),
    ("a seed with two ids", request(path=SEED, cookies=agent_cookie(OTHER)), BODY, {**STARTED, **TWO_IDS}),
    ("a close with two ids", request(path=CLOSE, cookies=agent_cookie(OTHER)), BODY, {**ENDED, **TWO_IDS}),
    ("an untyped seed", request(path=SEED), b"{}", {"starts": True}),
    ("an untyped close", request(path=CLOSE, cookies=agent_cookie()), b"[]", {**NAMED, "ends": True}),
    ("starts match POST only", request("GET", SEED, cookies=agent_cookie()), b"", NAMED),
    ("under a rollout", request(path="/ng-rollout/r1" + SEED), BODY, STARTED),
    ("under a token capture", request(path=CAPTURE + CLOSE), BODY, ENDED),
    ("under a rollout's token capture", request(path="/ng-rollout/r1" + CAPTURE + SEED), BODY, STARTED),
    ("under a token capture's rollout", request(path=CAPTURE + "/ng-rollout/r1" + SEED), BODY, STARTED),
    ("a name that starts like the capture", request(path=CAPTURE + "s" + SEED, cookies=agent_cookie()), b"", NAMED),
    ("a resources server's route is none here", request(path="/seed_session", cookies=agent_cookie()), b"", NAMED),
    ("/aggregate_metrics", request(path="/aggregate_metrics"), b"", {"stateless": True}),
]  # fmt: skip


@pytest.mark.parametrize(("head", "content", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_what_a_request_says(head: RequestHead, content: bytes, expected: dict[str, Any]) -> None:
    """Only agent sessions are sessions; their id is in the body of a seed and a close, and in the cookie elsewhere."""
    assert fields(read(make("gym-agent"), head, content)) == expected


def test_a_seed_keeps_what_the_cookie_holds() -> None:
    """The id is merged into a valid payload: the middleware's own id stays."""
    adapter = make("gym-agent")
    headers = adapter.mint(request(path=SEED, cookies=cookie(OTHER)), SID)
    raw = cookies.joined(headers) or b""
    assert fields(adapter.read(request(cookies=raw))) == NAMED
    assert fields(make("gym-resources").read(request(cookies=raw))) == {"session": OTHER, "vouched": True}


def test_replies() -> None:
    """A cookie without an agent session names none and stays; one with an id that nobody holds is taken out."""
    adapter = make("gym-agent")
    plain, named = set_cookie({"session_id": OTHER}), set_cookie({"session_id": OTHER, "agent_session_id": SID})
    assert adapter.reply(request("GET", "/"), Reading(), None, reply(200, plain)).headers is None
    assert adapter.reply(request("GET", "/"), Reading(), None, reply(200, named)).headers == reply().headers
    assert fields(adapter.reply(request(path=SEED), Reading(starts=True), None, reply(200, named))) == {"issued": SID}
    stateless = Reading(stateless=True)
    assert adapter.reply(request(), stateless, None, reply(200, named)).headers == reply().headers
    assert fields(adapter.reply(request(), Reading(SID), SID, reply(200, named))) == {"issued": SID}
    assert fields(adapter.reply(request(), Reading(SID), SID, reply(200, plain))) == {"expired": True}


def test_agents_that_keep_state_by_the_middlewares_id() -> None:
    """With `field: session_id` every id-less POST gets an id, as on resources servers."""
    adapter = make("gym-agent", field="session_id")
    assert fields(read(adapter, request(path="/run"))) == {"mints": True}
    assert fields(read(adapter, request("GET", "/"))) == {}
    assert fields(read(adapter, request(path="/run", cookies=cookie()))) == NAMED
    seen = adapter.reply(request("GET", "/"), Reading(), None, reply(200, set_cookie({"session_id": OTHER})))
    assert seen.headers == reply().headers


def test_own_replies_repeat_the_cookie_as_it_came() -> None:
    """As for resources servers."""
    adapter = make("gym-agent")
    head = request(cookies=agent_cookie())
    own = adapter.own_reply("session_gone", head, adapter.read(head), {})
    assert own.status == 410
    assert dict(own.headers)[b"set-cookie"].startswith(agent_cookie() + b"; path=/")


def test_the_life_of_a_claim() -> None:
    """The window runs from the close's reply, and a seed that created nothing rolls its claim back."""
    life = make("gym-agent", session_close_retry_window_seconds=9.0).life
    assert (life.explicit, life.window_seconds, life.slides, life.rolls_back) == (True, 9.0, False, True)
