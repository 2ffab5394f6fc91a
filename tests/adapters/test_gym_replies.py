"""Preset gym-resources: what replies do to a session, what goes into requests, and replies of the router's own."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from adapters.helpers import (
    CLEARED,
    NAME,
    OTHER,
    SID,
    TOKEN,
    cookie,
    fields,
    make,
    reply,
    request,
    set_cookie,
    signed,
    token,
)

from server_adapters import cookies
from server_adapters.adapter import STATUS_OF, Reading, ReplyKind
from server_adapters.heads import ResponseHead

NAMED = {"session": SID, "vouched": True}
WITH_TOKEN = [(TOKEN, token())]
AGENT_COOKIE = cookie(OTHER, name="SimpleAgent___agent")

HAD = Reading(SID, vouched=True)
MINTED = Reading(mints=True)
OWN, STRANGE = set_cookie({"session_id": SID}), set_cookie({"session_id": OTHER})

REPLIES: list[tuple[str, Reading, str | None, int, list[str], dict[str, Any], bool]] = [
    # label, reading, the id it ran under, status, Set-Cookie lines, expected, whether the cookie is taken out
    ("signed again", HAD, SID, 200, [OWN], {"issued": SID}, False),
    ("a new id is given out", MINTED, SID, 200, [OWN], {"issued": SID}, False),
    ("an error of a handler gives it out too", MINTED, SID, 422, [OWN], {"issued": SID}, False),
    ("no cookie: a 500 of the exception middleware", MINTED, SID, 500, [], {}, False),
    ("a route that is none for this method", MINTED, SID, 405, [OWN], {"nothing": True}, True),
    ("a redirect of the routing", MINTED, SID, 307, [OWN], {"nothing": True}, True),
    ("and without a cookie", MINTED, SID, 405, [], {"nothing": True}, False),
    ("a 404 of a handler may have made a session", MINTED, SID, 404, [OWN], {"issued": SID}, False),
    ("a session that was there before keeps its cookie", HAD, SID, 405, [OWN], {"issued": SID}, False),
    ("and with a redirect too", HAD, SID, 307, [OWN], {"issued": SID}, False),
    ("an id-less GET gets no name for a session", Reading(), None, 200, [STRANGE], {}, True),
    ("nor with a 404", Reading(), None, 404, [STRANGE], {}, True),
    ("nor does a stateless route", Reading(stateless=True), None, 200, [STRANGE], {}, True),
    ("nor /mcp without a token", Reading(stateless=True), None, 200, [STRANGE], {}, True),
    ("nor a stateless route whose id nobody holds", Reading(SID, stateless=True), None, 200, [OWN], {}, True),
    ("a stateless route on the owner", Reading(SID, stateless=True), SID, 200, [OWN], {"issued": SID}, False),
    ("an id that changes", HAD, SID, 200, [STRANGE], {"issued": OTHER}, False),
    ("logout by clear()", HAD, SID, 200, [CLEARED], {"expired": True}, False),
    ("logout without the id", HAD, SID, 200, [set_cookie({"flash": "bye"})], {"expired": True}, False),
    ("the last of two counts", HAD, SID, 200, [STRANGE, OWN], {"issued": SID}, False),
    ("a cleared cookie where nobody had one", Reading(), None, 200, [CLEARED], {"expired": True}, False),
    ("another cookie is not touched", Reading(), None, 200, ["theme=dark"], {}, False),
    (
        "a cookie under another key names nothing",
        HAD,
        SID,
        200,
        [set_cookie({"session_id": OTHER}, secret="x")],
        {},
        False,
    ),
]


@pytest.mark.parametrize(
    ("reading", "session", "status", "lines", "expected", "taken_out"),
    [row[1:] for row in REPLIES],
    ids=[row[0] for row in REPLIES],
)
def test_what_a_reply_says(
    reading: Reading, session: str | None, status: int, lines: list[str], expected: dict[str, Any], taken_out: bool
) -> None:
    """A client never gets a name for a session that nobody holds; other cookies and the order of the headers stay."""
    answer = reply(status, "first=1", *lines, "last=1", headers=[(b"vary", b"Cookie")])
    seen = make("gym-resources").reply(request(), reading, session, answer)
    got = fields(seen)
    headers = got.pop("headers", None)
    assert got == expected
    if taken_out:
        assert headers == reply(status, "first=1", "last=1", headers=[(b"vary", b"Cookie")]).headers
    else:
        assert headers is None


def test_a_404_of_the_routing_leaves_nothing() -> None:
    """No handler has seen the request; a session that was there before keeps its cookie."""
    answer = ResponseHead(404, reply(404, OWN).headers, unrouted=True)
    adapter = make("gym-resources")
    assert fields(adapter.reply(request(), MINTED, SID, answer)) == {"headers": reply().headers, "nothing": True}
    assert fields(adapter.reply(request(), HAD, SID, answer)) == {"issued": SID}


@pytest.mark.parametrize(
    ("content", "encoding", "ends"),
    [
        (b'{"observation": "x", "reward": 0.5, "terminated": true, "truncated": false}', None, True),
        (b'{"terminated": false, "truncated": true}', None, True),
        (b'{"terminated": false, "truncated": false}', None, False),
        (b'{"observation": {"terminated": true}}', None, False),
        (b'{"terminated": "true"}', None, False),
        (b'{"terminated": 1}', None, False),
        (b'{"observation": NaN, "terminated": true}', None, True),
        (gzip.compress(b'{"terminated": true}', mtime=0), b"gzip", True),
        (b'[{"terminated": true}]', None, False),
        (b"data: {}\n\n", None, False),
        (b"", None, False),
    ],
)
def test_a_step_ends_the_session_when_its_reply_says_so(content: bytes, encoding: bytes | None, ends: bool) -> None:
    """JSON with `terminated` or `truncated` true; nothing else."""
    adapter = make("gym-resources")
    head = request(path="/step", cookies=cookie())
    answer = reply(200, headers=[] if encoding is None else [(b"content-encoding", encoding)])
    assert adapter.read_reply_body(head, adapter.read(head), answer, content) is ends


def test_a_minted_id_goes_into_the_request() -> None:
    """The app's middleware takes it over; what a valid cookie without an id holds is kept."""
    adapter = make("gym-resources")
    head = request(cookies=AGENT_COOKIE + b"; " + cookie(None, basket=[1]))
    [raw] = [value for key, value in adapter.mint(head, SID) if key == b"cookie"]
    assert raw.startswith(AGENT_COOKIE)
    assert fields(adapter.read(request(cookies=raw))) == NAMED
    assert [line for line in adapter.mint(head, SID) if line[0] != b"cookie"] == [
        line for line in head.headers if line[0] != b"cookie"
    ]


def test_on_mcp_the_cookie_is_replaced() -> None:
    """The cookie of another session leaves nothing of it in the token's."""
    adapter = make("gym-resources")
    head = request(path="/mcp", headers=WITH_TOKEN, cookies=cookie(OTHER, basket=[1]))
    raw = cookies.joined(adapter.mint(head, SID)) or b""
    assert raw.count(NAME.encode()) == 1
    assert fields(adapter.read(request(cookies=raw))) == NAMED
    assert b"basket" not in raw


@pytest.mark.parametrize("kind", list(STATUS_OF))
def test_own_replies_repeat_the_cookie_as_it_came(kind: ReplyKind) -> None:
    """Gym's clients send the last reply's cookies and no others: without it they could not name their session again."""
    adapter = make("gym-resources")
    value = f'"{signed({"session_id": SID})}"'
    head = request(cookies=f"a=1; {NAME}={value}; b=2".encode())
    own = adapter.own_reply(kind, head, adapter.read(head), {"detail": "why", "session": SID, "worker": 2})
    assert own.status == STATUS_OF[kind]
    lines = [line for key, line in own.headers if key == b"set-cookie"]
    assert lines == [f"{NAME}={value}; path=/; Max-Age=1209600; httponly; samesite=lax".encode()]
    content = json.loads(own.body)
    assert content == {
        "error": kind,
        "detail": "why",
        "server": None,
        "session": SID,
        "worker": 2,
        "incarnation": None,
        "died_at": None,
    }
    headers = dict(own.headers)
    assert headers[b"cache-control"] == b"no-store"
    assert headers[b"content-length"] == b"%d" % len(own.body)
    assert (b"retry-after" in headers) is (own.status == 503)


def test_an_own_reply_without_a_cookie_gives_none() -> None:
    """A session named by body or token is named so again; a forged cookie is not repeated."""
    adapter = make("gym-resources")
    for head in (request(), request(headers=WITH_TOKEN), request(cookies=f"{NAME}=forged".encode())):
        own = adapter.own_reply("session_gone", head, adapter.read(head), {})
        assert b"set-cookie" not in dict(own.headers)
