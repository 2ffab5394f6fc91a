"""Preset custom's ids inside bodies and frames: as the presets of fixed protocols have them, in words of a config."""

from __future__ import annotations

import json
from typing import Any

import pytest
from adapters.helpers import read, request

from server_adapters.adapter import Adapter, Reading
from server_adapters.errors import AffinityError
from server_adapters.finders import Finder
from server_adapters.heads import RequestHead, ResponseHead
from server_adapters.registry import build, check_options

SOCKET_IO = {
    "sources": [{"query": "sid"}],
    "replies": [
        {"body_json": {"path": "sid", "prefix": "0", "routes": ["GET /socket.io/"]}},
        {"frame_json": {"path": "sid", "prefix": "0", "routes": ["/socket.io/"]}},
    ],
    "starts": ["GET,WEBSOCKET /socket.io/"],
    "lasts": ["WEBSOCKET /socket.io/"],
}
MCP_SSE = {
    "sources": [{"query": "session_id"}],
    "replies": [
        {"body_event": {"event": "endpoint", "pattern": "session_id=(?P<session>\\w+)", "routes": ["GET /sse"]}}
    ],
    "starts": ["GET /sse"],
    "lasts": ["GET /sse"],
}
STREAMLIT = {
    "sources": [{"subprotocol": 3}, {"path": ".*/upload_file/(?P<session>[^/]+)/"}],
    "replies": [{"frame_pattern": {"pattern": r"\x32\x24(?P<session>[0-9a-f-]{36})"}}],
}
PROVIDER = {
    "sources": [{"json": {"path": "params.arguments.session_id", "routes": ["/mcp"]}}],
    "replies": [{"body_json": {"path": "result.structuredContent.result", "routes": ["/mcp"]}}],
}
ID = "12345678-9abc-4def-8012-3456789abcde"


def custom(options: dict[str, Any]) -> Adapter:
    """The adapter of a config."""
    return build({"preset": "custom", **options}, None, server="test")


def socket(path: str, offered: bytes = b"") -> RequestHead:
    """A WebSocket's head."""
    headers = [(b"sec-websocket-protocol", offered)] if offered else None
    return request("GET", path, headers=headers, websocket=True)


READINGS: list[tuple[dict[str, Any], RequestHead, Any, Reading]] = [
    (SOCKET_IO, request("GET", "/socket.io/", query=b"sid=a"), None, Reading("a", starts=True)),
    (SOCKET_IO, socket("/socket.io/"), None, Reading(starts=True, lasts=True)),
    (MCP_SSE, request("GET", "/sse"), None, Reading(starts=True, lasts=True)),
    (STREAMLIT, socket("/stream", b"a, b, c"), None, Reading("c")),
    (STREAMLIT, socket("/stream", b"a, b"), None, Reading()),
    (STREAMLIT, request("PUT", "/x/upload_file/c/f"), None, Reading("c")),
    (PROVIDER, request("POST", "/mcp"), {"params": {"arguments": {"session_id": "s"}}}, Reading("s")),
    (PROVIDER, request("POST", "/mcp"), {"session_id": "s"}, Reading()),
]


@pytest.mark.parametrize(("options", "head", "body", "expected"), READINGS)
def test_a_request(options: dict[str, Any], head: RequestHead, body: Any, expected: Reading) -> None:
    """Ids in subprotocols and in bodies by path; routes whose sessions last as long as they do."""
    assert read(custom(options), head, json.dumps(body).encode()) == expected


def in_reply(options: dict[str, Any], head: RequestHead, status: int = 200) -> Finder | None:
    """What is looked for in the reply to a request."""
    return custom(options).reply(head, Reading(), None, ResponseHead(status, [])).finder


FOUND: list[tuple[Finder | None, bytes, str]] = [
    (in_reply(SOCKET_IO, request("GET", "/socket.io/")), b'0{"sid":"abc"}', "abc"),
    (custom(SOCKET_IO).frames(socket("/socket.io/"), Reading()), b'0{"sid":"abc"}', "abc"),
    (in_reply(MCP_SSE, request("GET", "/sse")), b"event: endpoint\ndata: /m?session_id=abc\n\n", "abc"),
    (custom(STREAMLIT).frames(socket("/any"), Reading()), b"xy\x32\x24" + ID.encode() + b"\xff", ID),
    (in_reply(PROVIDER, request("POST", "/mcp")), b'{"result":{"structuredContent":{"result":"abc"}}}', "abc"),
]


@pytest.mark.parametrize(("finder", "data", "expected"), FOUND)
def test_an_id_that_is_given_out(finder: Finder | None, data: bytes, expected: str) -> None:
    """In a reply's JSON or events, and in frames of text and bytes."""
    assert finder is not None
    assert finder.feed(data, last=False) == expected


NOTHING: list[Finder | None] = [
    in_reply(SOCKET_IO, request("POST", "/socket.io/")),
    in_reply(SOCKET_IO, request("GET", "/socket.io/"), 400),
    in_reply(SOCKET_IO, socket("/socket.io/"), 101),
    custom(SOCKET_IO).frames(socket("/other"), Reading()),
    custom(MCP_SSE).frames(socket("/sse"), Reading()),
]


def test_where_nothing_is_looked_for() -> None:
    """Other routes, errors, and heads of WebSockets."""
    assert [None] * len(NOTHING) == NOTHING


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("sources[0].subprotocol", {"sources": [{"subprotocol": 0}], "unknown": "claim"}),
    ("sources[0].json.path", {"sources": [{"json": {"path": "a..b", "routes": ["/a"]}}], "unknown": "claim"}),
    ("sources[0].json", {"sources": [{"json": {"path": "a", "field": "a", "routes": ["/a"]}}], "unknown": "claim"}),
    ("sources[0].json.field", {"sources": [{"json": {"field": 'a"', "routes": ["/a"]}}], "unknown": "claim"}),
    ("replies[0].body_json", {"replies": [{"body_json": {"path": "a"}}]}),
    ("replies[0].body_json.routes", {"replies": [{"body_json": {"path": "a", "routes": []}}]}),
    ("replies[0].body_json.routes[0]", {"replies": [{"body_json": {"path": "a", "routes": ["a"]}}]}),
    ("replies[0].body_json.prefix", {"replies": [{"body_json": {"path": "a", "prefix": 0, "routes": ["/a"]}}]}),
    ("replies[0].body_event.pattern", {"replies": [{"body_event": {"pattern": "(", "routes": ["/a"]}}]}),
    ("replies[0].body_event.pattern", {"replies": [{"body_event": {"pattern": "a", "routes": ["/a"]}}]}),
    ("replies[0].frame_json.path", {"replies": [{"frame_json": {"path": ""}}]}),
    ("replies[0].frame_pattern.pattern", {"replies": [{"frame_pattern": {"pattern": "\u20ac"}}]}),
    ("replies[0].frame_pattern", {"replies": [{"frame_pattern": "a"}]}),
    ("lasts[0]", {"unknown": "claim", "lasts": ["ws"]}),
]


@pytest.mark.parametrize(("key", "options"), WRONG)
def test_a_mistake_is_told_with_its_key(key: str, options: dict[str, Any]) -> None:
    """Before anything is served."""
    errors: list[AffinityError] = check_options({"preset": "custom", "sources": [{"query": "a"}], **options})
    assert [error.key for error in errors] == [key]
