"""Gym's MCP session token."""

from __future__ import annotations

import pytest
from adapters.helpers import NAME, SID, steady, token
from hypothesis import given
from hypothesis import strategies as st
from itsdangerous import URLSafeSerializer, URLSafeTimedSerializer

from server_adapters.tokens import SessionTokens

MANY_TOOLS = ["a_tool_with_a_long_name"] * 50


@pytest.mark.parametrize(
    ("text", "session"),
    [
        (token(SID), SID),
        (token(SID, tools=["one"]), SID),
        (token(SID, tools=MANY_TOOLS), SID),
        (token(SID, worker=3), SID),
        (token("é"), "é"),
        (token(SID, secret="another"), None),
        (token(SID)[:-1], None),
        (token(SID, tools=MANY_TOOLS)[:-2], None),
        (token(""), None),
        (token(None), None),
        (token(7), None),
        (token("x" * 3000), None),
        (str(URLSafeSerializer(NAME, salt="nemo-gym-mcp-session-token").dumps([SID])).encode(), None),
        (str(URLSafeSerializer(NAME).dumps({"sid": SID})).encode(), None),
        (b"", None),
        (b".", None),
        (b"\xff.\xff", None),
    ],
)
def test_what_a_token_names(text: bytes, session: str | None) -> None:
    """The id under a valid signature, compressed or not, whatever else is in it."""
    tokens = SessionTokens(NAME)
    assert tokens.session(text) == session
    assert tokens.session(text) == session, "the same from the cache"


def test_a_token_with_a_time_is_another_kind() -> None:
    """Also under the right name, secret and salt."""
    timed = URLSafeTimedSerializer(NAME, salt="nemo-gym-mcp-session-token").dumps({"sid": SID})
    assert SessionTokens(NAME).session(str(timed).encode()) is None


def test_many_tools_are_compressed() -> None:
    """The row above does test a compressed token."""
    assert token(SID, tools=MANY_TOOLS).startswith(b".")


@steady
@given(st.binary(max_size=60))
def test_garbage_is_no_token(text: bytes) -> None:
    """Nothing that a client can write raises."""
    assert SessionTokens(NAME).session(text) is None
