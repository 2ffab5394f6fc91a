"""Whatever comes in, every adapter has an answer."""

from __future__ import annotations

from typing import Any

import pytest
from adapters.helpers import NAME, SID, TOKEN, make, signed, steady, token
from hypothesis import given
from hypothesis import strategies as st

from server_adapters.adapter import STATUS_OF, Adapter
from server_adapters.heads import Header, RequestHead, ResponseHead
from server_adapters.registry import build
from server_adapters.sessions import MAX_SESSION_BYTES

EVERYTHING: dict[str, Any] = {
    "sources": [
        {"cookie": "sid"},
        {"signed_cookie": {"name": NAME, "secret": NAME, "field": "session_id"}},
        {"header": "x-session"},
        {"query": "sid"},
        {"path": "/(?P<session>.*)"},
        {"json": {"field": "id", "routes": ["* /*"]}},
    ],
    "replies": [{"response_header": "x-session"}, {"issue_cookie": "gsv"}],
    "starts": ["* /seed_session"],
    "gone": {"status": 404, "body": "gone"},
}
ADAPTERS: list[Adapter] = [
    make("gym-resources"),
    make("gym-agent"),
    make("gym-agent", field="session_id"),
    make("starlette-session", field="session_id"),
    build({"preset": "custom", **EVERYTHING}, None, server="test"),
    build({"preset": "custom", **EVERYTHING, "unknown": "claim"}, None, server="test"),
    build({"preset": "none"}, None, server="test"),
]

VALUE = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(
        [f"{NAME}={signed({'session_id': SID})}".encode(), f"{NAME}=".encode(), b"sid=a", b"sid=b", token()]
    ),
)
NAMES = st.sampled_from([b"cookie", b"set-cookie", b"x-session", TOKEN, b"content-encoding", b"x-other"])
HEADERS: st.SearchStrategy[list[Header]] = st.lists(st.tuples(NAMES, VALUE), max_size=5)
PATHS = st.one_of(
    st.text(max_size=10),
    st.sampled_from(
        ["/mcp", "/mcp/", "/step", "/verify", "/v1/agent_sessions", "/training-token-capture", "/ng-rollout/"]
    ),
    st.builds("/ng-rollout/{}/seed_session".format, st.text(max_size=4)),
)
HEADS = st.builds(
    RequestHead,
    st.sampled_from(["GET", "POST", "HEAD", "OPTIONS", "DELETE", "BREW"]),
    PATHS,
    st.just(b""),
    st.one_of(st.binary(max_size=12), st.just(b"sid=c")),
    HEADERS,
    st.booleans(),
)
BODIES = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(
        [b'{"resources_session_id": "c"}', b'{"agent_session_id": "c"}', b'{"id": "c"}', b'{"terminated": true}']
    ),
)
REPLIES = st.builds(ResponseHead, st.integers(100, 599), HEADERS)


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.name)
@steady
@given(head=HEADS, body=BODIES, reply=REPLIES, session=st.none() | st.just(SID), kind=st.sampled_from(list(STATUS_OF)))
def test_nothing_raises_and_what_is_said_fits_together(
    adapter: Adapter, head: RequestHead, body: bytes, reply: ResponseHead, session: str | None, kind: Any
) -> None:
    """The router may rely on it: what a reading promises is never contradictory."""
    reading = adapter.read(head)
    assert adapter.read(head) == reading, "the same from the cache"
    if reading.needs_body:
        reading = adapter.read_body(head, reading, body)
    assert not reading.needs_body
    if reading.session is None:
        assert not any((reading.vouched, reading.typed, reading.conflict, reading.replaces_gone))
    else:
        assert 0 < len(reading.session.encode()) <= MAX_SESSION_BYTES
    assert not (reading.stateless and reading.vouched)
    assert not (reading.ends and reading.stays_open)
    if reading.mints:
        named = reading.session or SID
        minted = RequestHead(
            head.method, head.path, head.raw_path, head.query, adapter.mint(head, named), head.websocket
        )
        again = adapter.read(minted)
        if again.needs_body:
            again = adapter.read_body(minted, again, body)
        assert (again.session, again.mints) == (named, False) or reading.stateless or reading.conflict
    seen = adapter.reply(head, reading, session, reply)
    assert not (seen.issued is not None and seen.expired)
    if seen.headers is not None:
        assert {key for key, _ in seen.headers} <= {key for key, _ in reply.headers} | {b"set-cookie"}
    adapter.read_reply_body(head, reading, reply, body)
    own = adapter.own_reply(kind, head, reading, {"session": reading.session})
    assert 400 <= own.status < 600
    assert dict(own.headers)[b"content-length"] == b"%d" % len(own.body)
