"""Preset custom: every source and every reply."""

from __future__ import annotations

import json
from typing import Any

import pytest
from adapters.helpers import OTHER, SID, fields, read, reply, request, signed

from server_adapters.adapter import STATUS_OF, Adapter, Reading, ReplyKind
from server_adapters.heads import RequestHead
from server_adapters.registry import build

SIGNED = {"name": "session", "secret": "s3cret", "field": "user"}
ALL = [
    {"cookie": "sid"},
    {"signed_cookie": SIGNED},
    {"header": "Mcp-Session-Id"},
    {"query": "sid"},
    {"path": r"/session/(?P<session>[0-9a-f-]+)(/|$)"},
    {"json": {"field": "session_hash", "routes": ["/queue/join", "PUT /queue/{n}"]}},
]
NAMED = {"session": SID}
VOUCHED = {**NAMED, "vouched": True}
JOIN = json.dumps({"session_hash": SID}).encode()
SIGNED_COOKIE = f"session={signed({'user': SID}, secret='s3cret')}".encode()


def custom(**options: Any) -> Adapter:
    """An adapter; without sources it has them all."""
    return build({"preset": "custom", "sources": ALL, **options}, None, server="test")


def header(value: bytes, name: bytes = b"mcp-session-id") -> list[tuple[bytes, bytes]]:
    """One header."""
    return [(name, value)]


SOURCES: list[tuple[str, RequestHead, bytes, dict[str, Any]]] = [
    ("cookie", request(cookies=f"a=1; sid={SID}".encode()), b"", NAMED),
    ("cookie, quoted", request(cookies=f'sid="{SID}"'.encode()), b"", NAMED),
    ("cookie, doubled: the last wins", request(cookies=f"sid=x; sid={SID}".encode()), b"", NAMED),
    ("cookie, empty", request(cookies=b"sid="), b"", {}),
    ("signed_cookie", request(cookies=SIGNED_COOKIE), b"", VOUCHED),
    ("signed_cookie, forged", request(cookies=SIGNED_COOKIE[:-1]), b"", {}),
    ("header", request(headers=header(SID.encode())), b"", NAMED),
    ("header, with spaces", request(headers=header(b" " + SID.encode() + b" ")), b"", NAMED),
    ("header, empty", request(headers=header(b"")), b"", {}),
    ("header, twice the same", request(headers=header(SID.encode()) * 2), b"", NAMED),
    ("query", request("GET", query=f"x=1&sid={SID}".encode()), b"", NAMED),
    ("query, escaped", request("GET", query=b"s%69d=" + SID.replace("-", "%2D").encode()), b"", NAMED),
    ("query, blank", request("GET", query=b"sid=&x"), b"", {}),
    ("query of a websocket", request("GET", query=f"sid={SID}".encode(), websocket=True), b"", NAMED),
    ("path", request("GET", f"/session/{SID}/file"), b"", NAMED),
    ("path, from its start", request("GET", f"/x/session/{SID}"), b"", {}),
    ("json", request(path="/queue/join"), JOIN, NAMED),
    ("json, of another route", request("PUT", "/queue/7"), JOIN, NAMED),
    ("json, without the field", request(path="/queue/join"), b"{}", {}),
    ("json and header", request(path="/queue/join", headers=header(SID.encode())), JOIN, NAMED),
    ("nothing", request(), b"", {}),
    ("signed beside unsigned", request(cookies=SIGNED_COOKIE, query=f"sid={SID}".encode()), b"", VOUCHED),
]  # fmt: skip


@pytest.mark.parametrize(("head", "body", "expected"), [row[1:] for row in SOURCES], ids=[row[0] for row in SOURCES])
def test_every_source(head: RequestHead, body: bytes, expected: dict[str, Any]) -> None:
    """A signature vouches for an id; nothing else does."""
    assert fields(read(custom(), head, body)) == expected


def test_bodies_are_read_on_the_given_routes_only() -> None:
    """A body is held whole while it is read, so no other route's is."""
    adapter = custom()
    assert adapter.read(request(path="/queue/join")).needs_body
    assert adapter.read(request("PUT", "/queue/join")).needs_body
    assert not adapter.read(request("PUT", "/queue/a/b")).needs_body
    assert not adapter.read(request(path="/upload")).needs_body


@pytest.mark.parametrize(
    ("head", "body", "conflict"),
    [
        (request(cookies=f"sid={SID}".encode(), query=f"sid={OTHER}".encode()), b"", ("cookie sid", "query sid")),
        (request(headers=header(SID.encode()) + header(OTHER.encode())), b"", ("header Mcp-Session-Id",) * 2),
        (request(query=f"sid={SID}&sid={OTHER}".encode()), b"", ("query sid",) * 2),
        (request(path=f"/session/{SID}", query=f"sid={OTHER}".encode()), b"", ("query sid", "path")),
        (
            request(path="/queue/join", headers=header(SID.encode())),
            json.dumps({"session_hash": OTHER}).encode(),
            ("header Mcp-Session-Id", "body session_hash"),
        ),
    ],
)
def test_sources_that_disagree_are_a_conflict(head: RequestHead, body: bytes, conflict: tuple[str, ...]) -> None:
    """Refused with both names, not guessed."""
    reading = read(custom(), head, body)
    assert reading.conflict == conflict
    assert not reading.mints


def test_starts_and_ends_have_methods() -> None:
    """A route without a method is POST."""
    adapter = custom(
        starts=["/begin", "WEBSOCKET /ws"], ends=["DELETE /begin", "GET,POST /bye"], stateless_routes=["/metrics"]
    )
    head_of = {"headers": header(SID.encode())}
    assert fields(read(adapter, request(path="/begin"))) == {"starts": True}
    assert fields(read(adapter, request("GET", "/ws", websocket=True))) == {"starts": True}
    assert fields(read(adapter, request("GET", "/ws"))) == {}
    assert fields(read(adapter, request("DELETE", "/begin", **head_of))) == {**NAMED, "ends": True}  # type: ignore[arg-type]
    assert fields(read(adapter, request("GET", "/bye", **head_of))) == {**NAMED, "ends": True}  # type: ignore[arg-type]
    assert fields(read(adapter, request("GET", "/metrics", **head_of))) == {**NAMED, "stateless": True}  # type: ignore[arg-type]


def test_unknown_claim_vouches_for_ids_that_clients_make() -> None:
    """Such an id is one of a new session, and a start of it may replace a gone record; `pass` does neither."""
    heads = request(headers=header(SID.encode())), request(path="/begin", headers=header(SID.encode()))
    claim = custom(unknown="claim", starts=["/begin"])
    assert [fields(read(claim, head)) for head in heads] == [
        {**NAMED, "vouched": True},
        {**NAMED, "vouched": True, "starts": True, "replaces_gone": True},
    ]
    assert fields(read(claim, request(path="/begin"))) == {"starts": True}
    pass_on = custom(unknown="pass", starts=["/begin"])
    assert [fields(read(pass_on, head)) for head in heads] == [NAMED, {**NAMED, "starts": True}]
    assert fields(read(custom(unknown="claim", stateless_routes=["/begin"]), heads[1])) == {**NAMED, "stateless": True}


REPLY_HEADER = {"replies": [{"response_header": "Mcp-Session-Id"}]}


@pytest.mark.parametrize(
    ("options", "lines", "headers", "expected"),
    [
        (REPLY_HEADER, [], header(SID.encode()), {"issued": SID}),
        (REPLY_HEADER, [], header(b""), {}),
        (REPLY_HEADER, [], header(SID.encode(), b"other"), {}),
        ({}, [], header(SID.encode()), {}),
        ({}, [f"sid={SID}; Path=/"], [], {"issued": SID}),
        ({}, [f'sid="{SID}"'], [], {"issued": SID}),
        ({}, ["sid=x; path=/; Max-Age=0", f"sid={SID}"], [], {"issued": SID}),
        ({}, [f"sid={SID}; Max-Age=0"], [], {"expired": True}),
        ({}, ["sid=; path=/"], [], {"expired": True}),
        ({}, [f"session={signed({'user': SID}, secret='s3cret')}; path=/"], [], {"issued": SID}),
        ({}, ["session=null; expires=Thu, 01 Jan 1970 00:00:00 GMT"], [], {"expired": True}),
        ({"replies": [{"set_cookie": "late"}]}, [f"late={SID}"], [], {"issued": SID}),
        ({}, ["sid2=x"], [], {}),
        (REPLY_HEADER, ["sid=; Max-Age=0"], header(SID.encode()), {"issued": SID}),
    ],
)
def test_every_reply(options: dict[str, Any], lines: list[str], headers: Any, expected: dict[str, Any]) -> None:
    """Headers as the config says; cookies that are sources always, since whoever gives out an id must be its owner."""
    seen = custom(**options).reply(request(), Reading(), None, reply(200, *lines, headers=headers))
    assert fields(seen) == expected


def test_a_set_cookie_is_a_source_too() -> None:
    """What a reply gives out is looked for in the next request."""
    adapter = build({"preset": "custom", "replies": [{"set_cookie": "late"}]}, None, server="test")
    assert fields(read(adapter, request(cookies=f"late={SID}".encode()))) == NAMED


def test_a_stateless_routes_cookie_is_taken_out() -> None:
    """It would name a session that nobody holds; other cookies stay."""
    adapter = custom(stateless_routes=["/metrics"])
    answer = reply(200, "a=1", f"sid={SID}", "b=2")
    seen = adapter.reply(request(path="/metrics"), Reading(stateless=True), None, answer)
    assert fields(seen) == {"headers": reply(200, "a=1", "b=2").headers}


ISSUES: dict[str, Any] = {"sources": [{"header": "x-session"}], "replies": [{"issue_cookie": "gsv"}]}


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (request("GET", "/"), {"mints": True}),
        (request(), {"mints": True}),
        (request("OPTIONS", "/"), {}),
        (request("GET", "/ws", websocket=True), {"mints": True}),
        (request("GET", "/health"), {"stateless": True}),
        (request(cookies=f"gsv={SID}".encode()), VOUCHED),
        (request(cookies=f"gsv={SID.replace('-', '')}".encode()), {"session": SID.replace("-", ""), "vouched": True}),
        (request(cookies=b"gsv=chosen-by-a-client"), {"session": "chosen-by-a-client"}),
        (request(headers=[(b"x-session", SID.encode())]), NAMED),
    ],
)
def test_issue_cookie_gives_every_new_client_an_id(head: RequestHead, expected: dict[str, Any]) -> None:
    """An id in the form of the router's own counts also after a restart, when nobody claims it any more."""
    assert fields(read(custom(**ISSUES, stateless_routes=["/health"]), head)) == expected


@pytest.mark.parametrize(("status", "issued"), [(200, True), (303, True), (400, False), (404, False), (500, False)])
def test_issue_cookie_in_the_reply(status: int, issued: bool) -> None:
    """The client learns its id from a reply that is no error; with an error nothing is left of it."""
    adapter = custom(**ISSUES)
    head = request("GET", "/", cookies=b"theme=dark")
    assert dict(adapter.mint(head, SID))[b"cookie"] == f"theme=dark; gsv={SID}".encode()
    seen = adapter.reply(head, adapter.read(head), SID, reply(status, "a=1"))
    if issued:
        assert seen.issued == SID
        assert seen.headers == reply(status, "a=1", f"gsv={SID}; path=/; httponly; samesite=lax").headers
    else:
        assert fields(seen) == {}


def test_an_issued_cookie_may_be_among_the_sources() -> None:
    """It is one cookie all the same, and expired once."""
    adapter = custom(sources=[{"cookie": "gsv"}], replies=[{"issue_cookie": "gsv"}])
    head = request(cookies=f"gsv={SID}".encode())
    reading = adapter.read(head)
    assert fields(reading) == VOUCHED
    assert [key for key, _ in adapter.own_reply("session_gone", head, reading, {}).headers].count(b"set-cookie") == 1


def test_issue_cookie_leaves_known_sessions_alone() -> None:
    """A cookie is given once."""
    adapter = custom(**ISSUES)
    head = request(cookies=f"gsv={SID}".encode())
    assert fields(adapter.reply(head, adapter.read(head), SID, reply())) == {}
    assert custom().mint(head, SID) == head.headers


@pytest.mark.parametrize(
    ("gone", "status", "kind", "body"),
    [
        ({}, 410, b"application/json", None),
        ({"status": 404}, 404, b"application/json", None),
        (
            {"status": 404, "body": {"jsonrpc": "2.0", "id": None}},
            404,
            b"application/json",
            b'{"jsonrpc": "2.0", "id": null}',
        ),
        ({"status": 400, "body": "Invalid session"}, 400, b"text/plain; charset=utf-8", b"Invalid session"),
    ],
)
def test_the_gone_reply_is_the_configs(gone: dict[str, Any], status: int, kind: bytes, body: bytes | None) -> None:
    """A client that knows 404 for a lost session gets 404; the cookies that named the session are expired."""
    adapter = custom(gone=gone)
    head = request(cookies=f"sid={SID}; theme=dark".encode())
    own = adapter.own_reply("session_gone", head, adapter.read(head), {"session": SID})
    assert own.status == status
    headers = dict(own.headers)
    assert headers[b"content-type"] == kind
    assert headers[b"content-length"] == b"%d" % len(own.body)
    assert headers[b"cache-control"] == b"no-store"
    assert [line for key, line in own.headers if key == b"set-cookie"] == [
        b"sid=null; path=/; expires=Thu, 01 Jan 1970 00:00:00 GMT; httponly; samesite=lax"
    ]
    if body is None:
        assert json.loads(own.body)["error"] == "session_gone"
    else:
        assert own.body == body


@pytest.mark.parametrize("kind", [kind for kind in STATUS_OF if kind != "session_gone"])
def test_other_own_replies_are_the_usual_ones(kind: ReplyKind) -> None:
    """They leave every cookie alone."""
    own = custom(gone={"status": 404, "body": "x"}).own_reply(kind, request(cookies=b"sid=x"), Reading("x"), {})
    assert own.status == STATUS_OF[kind]
    assert b"set-cookie" not in dict(own.headers)


def test_the_life_of_a_claim() -> None:
    """A day, unless starts and ends are given."""
    assert (custom().life.explicit, custom().life.idle_seconds) == (False, 86400.0)
    assert custom(starts=["/begin"]).life.explicit
    assert not custom(starts=[]).life.explicit
    assert custom(idle_seconds=3.0).life.idle_seconds == 3.0
    assert not custom().life.kept_by_reply
