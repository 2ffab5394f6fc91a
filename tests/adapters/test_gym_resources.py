"""Preset gym-resources: each line of Gym's contract that an adapter alone can show."""

from __future__ import annotations

import json
from typing import Any

import pytest
from adapters.helpers import (
    NAME,
    OTHER,
    SID,
    TOKEN,
    cookie,
    fields,
    make,
    read,
    request,
    signed,
    token,
)

from server_adapters.heads import RequestHead

NONE: dict[str, Any] = {}
NEW = {"mints": True}
NAMED = {"session": SID, "vouched": True}
PUT = {**NAMED, "mints": True}
WITH_TOKEN = [(TOKEN, token())]
ENDED = {**NAMED, "ends": True}
TOKEN_OF_OTHER = [(TOKEN, token(OTHER))]
LOOKED_UP = {"session": SID, "stateless": True}
STATELESS = {"stateless": True}
FORGED = f"{NAME}=x".encode()
EXPIRED = f"{NAME}={signed({'session_id': SID}, at=1)}".encode()
AGENT_COOKIE = cookie(OTHER, name="SimpleAgent___agent")

HEADS: list[tuple[str, RequestHead, dict[str, Any]]] = [
    # the session cookie
    ("a tool call with the cookie", request(cookies=cookie()), NAMED),
    ("every method and route with the cookie", request("GET", "/", cookies=cookie()), NAMED),
    ("a websocket with the cookie", request("GET", "/ws", cookies=cookie(), websocket=True), NAMED),
    ("a quoted cookie", request(cookies=f'{NAME}="{signed({"session_id": SID})}"'.encode()), NAMED),
    ("a doubled cookie: the last wins", request(cookies=cookie(OTHER) + b"; " + cookie()), NAMED),
    ("doubled over two headers: the last wins", request(cookies=[cookie(OTHER), cookie()]), NAMED),
    ("in the first of two headers", request(cookies=[cookie(), b"a=1"]), NAMED),
    ("doubled, the last one forged", request(cookies=cookie() + f"; {NAME}=x.y.z".encode()), NEW),
    ("other servers' cookies beside it", request(cookies=AGENT_COOKIE + b"; " + cookie() + b"; a=b"), NAMED),
    ("only another server's cookie", request(cookies=AGENT_COOKIE), NEW),
    ("an old cookie with a worker id in it", request(cookies=cookie(SID, worker=3, owner="w3")), NAMED),
    ("a bad signature is a new session", request(cookies=cookie()[:-1]), NEW),
    ("an expired cookie is a new session", request(cookies=EXPIRED), NEW),
    ("a valid cookie without an id", request(cookies=cookie(None, basket=1)), NEW),
    # new ids
    ("an id-less POST", request(), NEW),
    ("an id-less DELETE", request("DELETE"), NEW),
    ("an id-less GET", request("GET", "/"), NONE),
    ("an id-less HEAD", request("HEAD", "/"), NONE),
    ("a preflight", request("OPTIONS", "/seed_session"), NONE),
    ("an id-less websocket", request("GET", "/ws", websocket=True), NONE),
    # the token
    ("a token and no cookie", request(headers=WITH_TOKEN), PUT),
    ("a token on a GET", request("GET", "/", headers=WITH_TOKEN), PUT),
    ("a compressed token", request(headers=[(TOKEN, token(tools=["tool"] * 90))]), PUT),
    ("an old token with a worker id in it", request(headers=[(TOKEN, token(worker=2))]), PUT),
    ("a token and a forged cookie", request(headers=WITH_TOKEN, cookies=FORGED), PUT),
    ("a token beside the cookie, not on /mcp", request(headers=TOKEN_OF_OTHER, cookies=cookie()), NAMED),
    ("a forged token", request(headers=[(TOKEN, token(secret="x"))]), NEW),
    ("two tokens: the first, as the app reads", request(headers=[*WITH_TOKEN, (TOKEN, token(OTHER))]), PUT),
    # /mcp
    ("/mcp with a token", request("POST", "/mcp", headers=WITH_TOKEN), PUT),
    ("below /mcp with a token", request("POST", "/mcp/x", headers=WITH_TOKEN), PUT),
    ("GET /mcp with a token", request("GET", "/mcp", headers=WITH_TOKEN), PUT),
    ("DELETE /mcp/ with a token", request("DELETE", "/mcp/", headers=WITH_TOKEN), PUT),
    ("on /mcp the token beats the cookie", request(path="/mcp", headers=WITH_TOKEN, cookies=cookie(OTHER)), PUT),
    ("on /mcp with a cookie of the same session", request(path="/mcp", headers=WITH_TOKEN, cookies=cookie()), NAMED),
    ("/mcp without a token", request(path="/mcp"), STATELESS),
    ("/mcp with a forged token", request(path="/mcp", headers=[(TOKEN, b"x")]), STATELESS),
    ("/mcp with a cookie alone claims nothing", request(path="/mcp", cookies=cookie()), LOOKED_UP),
    ("a path that only starts with /mcp", request(path="/mcpx", headers=TOKEN_OF_OTHER, cookies=cookie()), NAMED),
    ("/mcp under a rollout", request(path="/ng-rollout/t0-r0/mcp", headers=WITH_TOKEN, cookies=cookie(OTHER)), PUT),
    # starts and ends
    ("/reset starts", request(path="/reset"), {**NEW, "starts": True}),
    ("/reset starts anew", request(path="/reset", cookies=cookie()), {**NAMED, "starts": True}),
    ("/verify ends", request(path="/verify", cookies=cookie()), ENDED),
    ("/close ends", request(path="/close", cookies=cookie()), ENDED),
    ("an end without an id", request(path="/verify"), {**NEW, "ends": True}),
    (
        "/verify before a checkpoint's close",
        request(path="/verify", cookies=cookie(), headers=[(b"x-ng-checkpoint-close-follows", b"1")]),
        {**NAMED, "stays_open": True},
    ),
    (
        "/close takes no such header",
        request(path="/close", cookies=cookie(), headers=[(b"x-ng-checkpoint-close-follows", b"1")]),
        ENDED,
    ),
    ("/step may end", request(path="/step", cookies=cookie()), {**NAMED, "wants_reply_body": True}),
    ("an end by token", request(path="/verify", headers=WITH_TOKEN), {**PUT, "ends": True}),
    ("starts match POST only", request("GET", "/reset", cookies=cookie()), NAMED),
    ("ends match POST only", request("GET", "/verify", cookies=cookie()), NAMED),
    ("typed routes match POST only", request("PUT", "/seed_session", cookies=cookie()), NAMED),
    ("a trailing slash is another route", request(path="/seed_session/", cookies=cookie()), NAMED),
    # rollout prefix
    ("a route under a rollout", request(path="/ng-rollout/task0-roll.0_x/verify", cookies=cookie()), ENDED),
    ("an id of one character", request(path="/ng-rollout/7/reset"), {**NEW, "starts": True}),
    ("no rollout id: starts with a dot", request(path="/ng-rollout/.x/verify", cookies=cookie()), NAMED),
    ("no rollout id: another character", request(path="/ng-rollout/a b/verify", cookies=cookie()), NAMED),
    ("no rollout id: none", request(path="/ng-rollout//verify", cookies=cookie()), NAMED),
    ("a rollout alone", request("GET", "/ng-rollout/7"), NONE),
    ("one prefix only", request(path="/ng-rollout/7/ng-rollout/8/verify", cookies=cookie()), NAMED),
    # stateless routes
    ("/aggregate_metrics", request(path="/aggregate_metrics"), STATELESS),
    ("/aggregate_metrics under a rollout", request(path="/ng-rollout/1/aggregate_metrics"), STATELESS),
    ("with an id, to its owner; no claim", request(path="/aggregate_metrics", cookies=cookie()), LOOKED_UP),
    ("and by token too", request(path="/aggregate_metrics", headers=WITH_TOKEN), {**LOOKED_UP, "mints": True}),
]  # fmt: skip


@pytest.mark.parametrize(("head", "expected"), [row[1:] for row in HEADS], ids=[row[0] for row in HEADS])
def test_what_a_head_says(head: RequestHead, expected: dict[str, Any]) -> None:
    """Read cold and from the cache."""
    adapter = make("gym-resources")
    for _ in range(2):
        assert fields(read(adapter, head)) == expected


def body(session: Any, **more: Any) -> bytes:
    """A typed body."""
    return json.dumps({**more, "resources_session_id": session}).encode()


TYPED = {"session": SID, "vouched": True, "typed": True}
SEED, CLOSE = "/seed_session", "/close_session"
STARTED, ENDED_TYPED = {**TYPED, "starts": True}, {**TYPED, "ends": True}
SEEDED, CLOSED = {**STARTED, "mints": True}, {**ENDED_TYPED, "mints": True}
TWO_IDS = {"conflict": (f"cookie {NAME}", "body resources_session_id")}
TOKEN_AND_BODY = {"conflict": ("token", "body resources_session_id")}

BODIES: list[tuple[str, RequestHead, bytes, dict[str, Any]]] = [
    ("a typed seed gives its cookie its id", request(path=SEED), body(SID), SEEDED),
    ("a typed close", request(path=CLOSE), body(SID), CLOSED),
    ("a typed close with its cookie", request(path=CLOSE, cookies=cookie()), body(SID), ENDED_TYPED),
    ("a typed seed with its cookie", request(path=SEED, cookies=cookie()), body(SID), STARTED),
    ("a cookie without an id", request(path=SEED, cookies=cookie(None, a=1)), body(SID), SEEDED),
    ("a forged cookie is none", request(path=SEED, cookies=FORGED), body(SID), SEEDED),
    ("a seed with two ids", request(path=SEED, cookies=cookie(OTHER)), body(SID), {**SEEDED, **TWO_IDS}),
    ("a close with two ids", request(path=CLOSE, cookies=cookie(OTHER)), body(SID), {**CLOSED, **TWO_IDS}),
    ("token and body differ", request(path=CLOSE, headers=TOKEN_OF_OTHER), body(SID), {**CLOSED, **TOKEN_AND_BODY}),
    ("a token of the same session", request(path=CLOSE, headers=WITH_TOKEN), body(SID), CLOSED),
    ("under a rollout", request(path="/ng-rollout/1" + SEED), body(SID), SEEDED),
    ("a doubled cookie is none", request(path=SEED, cookies=cookie(OTHER) + b";" + cookie()), body(SID), STARTED),
    ("an untyped seed", request(path=SEED), b"{}", {"starts": True, "mints": True}),
    ("an untyped seed with a cookie", request(path=SEED, cookies=cookie()), b"{}", {**NAMED, "starts": True}),
    ("an untyped close", request(path=CLOSE, cookies=cookie()), b"{}", ENDED),
    ("an untyped close by token", request(path=CLOSE, headers=WITH_TOKEN), b"{}", {**PUT, "ends": True}),
    *(
        (f"untyped: {text[:30]!r}", request(path=SEED), text, {"starts": True, "mints": True})
        for text in (b"", b"null", b"[1]", body(""), body(None), body(7), body([SID]), body("\ud800"), body("x" * 9999),
                     b'{"x": {"resources_session_id": "a"}}', body(SID)[:-1], b"resources_session_id=a")
    ),
]  # fmt: skip


@pytest.mark.parametrize(("head", "content", "expected"), [row[1:] for row in BODIES], ids=[row[0] for row in BODIES])
def test_what_a_body_says(head: RequestHead, content: bytes, expected: dict[str, Any]) -> None:
    """Typed means a JSON object with a non-empty text at its top; anything else is an untyped request."""
    adapter = make("gym-resources")
    assert adapter.read(head).needs_body
    assert fields(read(adapter, head, content)) == expected


def test_the_config_adds_routes() -> None:
    """session_starts, session_ends and stateless_routes stand beside the preset's; the last replaces the default."""
    adapter = make(
        "gym-resources", session_starts=["/begin"], session_ends=["/done", "DELETE /s/{id}"], stateless_routes=["/info"]
    )
    assert fields(read(adapter, request(path="/begin"))) == {**NEW, "starts": True}
    assert fields(read(adapter, request(path="/ng-rollout/1/done", cookies=cookie()))) == ENDED
    assert fields(read(adapter, request("DELETE", "/s/1", cookies=cookie()))) == ENDED
    assert fields(read(adapter, request("GET", "/done", cookies=cookie()))) == NAMED
    assert fields(read(adapter, request("GET", "/info"))) == {"stateless": True}
    assert fields(read(adapter, request(path="/aggregate_metrics"))) == NEW
    assert fields(read(adapter, request(path="/verify", cookies=cookie()))) == ENDED


def test_another_field_can_name_the_session() -> None:
    """`field` says which."""
    adapter = make("gym-resources", field="episode")
    assert fields(read(adapter, request(cookies=cookie(OTHER, episode=SID)))) == NAMED


def test_the_life_of_a_claim() -> None:
    """Open until an end; the window is for all others, and only replies keep an id that nobody claimed."""
    life = make(
        "gym-resources", session_close_retry_window_seconds=7.0, open_idle_seconds=60.0, remember_closed=False
    ).life
    assert (life.explicit, life.window_seconds, life.idle_seconds, life.open_idle_seconds) == (True, 7.0, 7.0, 60.0)
    assert (life.remember_closed, life.slides, life.rolls_back, life.kept_by_reply) == (False, True, False, True)
    life = make("gym-resources").life
    assert (life.window_seconds, life.idle_seconds, life.open_idle_seconds, life.remember_closed) == (
        300.0,
        300.0,
        None,
        True,
    )
