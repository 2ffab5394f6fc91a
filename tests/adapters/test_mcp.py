"""Presets mcp and mcp-sse: where MCP's ids are, and what its clients are told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from adapters.helpers import read, request

from server_adapters.adapter import Reading
from server_adapters.heads import Header, ResponseHead
from server_adapters.mcp import Mcp
from server_adapters.mcp_sse import McpSse

SID = "9f86d081884c7d659a2feaa0c55ad015"
NAMED = [(b"mcp-session-id", SID.encode()), (b"mcp-protocol-version", b"2025-11-25")]
MODERN = [(b"mcp-protocol-version", b"2026-07-28")]
STREAMS = [(b"accept", b"application/json, text/event-stream")]
FACTS = {"detail": "worker 1 has exited", "server": "s", "session": SID, "worker": 1, "incarnation": 2}
SSE = ResponseHead(200, [(b"content-type", b"text/event-stream; charset=utf-8")])
JSON = ResponseHead(200, [(b"Content-Type", b"application/json")])


def call(tool: str = "t", *, number: Any = 3, **params: Any) -> dict[str, Any]:
    """A tools/call."""
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, **params}}


READINGS: list[tuple[str, list[Header], Any, Reading]] = [
    ("POST", NAMED, call(), Reading(SID, reply_to=b"3", last_words=True)),
    ("POST", NAMED, call(number="a"), Reading(SID, reply_to=b'"a"', last_words=True)),
    ("POST", NAMED, call(arguments={"session_id": "x"}), Reading(SID, reply_to=b"3", last_words=True)),
    ("POST", NAMED, {"jsonrpc": "2.0", "method": "notifications/initialized"}, Reading(SID, last_words=True)),
    (
        "POST",
        NAMED,
        {"id": 0, "method": "initialize"},
        Reading(SID, starts=True, judged=True, drops=(b"mcp-session-id",), reply_to=b"0", last_words=True),
    ),
    ("POST", NAMED, None, Reading(SID, last_words=True)),
    ("GET", NAMED, None, Reading(SID, last_words=True)),
    ("DELETE", NAMED, None, Reading(SID, ends=True)),
    ("GET", [], None, Reading()),
    ("DELETE", [], None, Reading()),
    ("POST", [], {"id": 0, "method": "initialize"}, Reading()),
    ("POST", STREAMS, {"id": 0, "method": "initialize"}, Reading(starts=True, reply_to=b"0", last_words=True)),
    ("POST", MODERN, call(), Reading(reply_to=b"3", last_words=True)),
    ("POST", MODERN, call("create_session"), Reading(starts=True, reply_to=b"3", last_words=True)),
    ("POST", MODERN, call("a_create_session"), Reading(starts=True, reply_to=b"3", last_words=True)),
    ("POST", MODERN, call(arguments={"session_id": "x"}), Reading("x", reply_to=b"3", last_words=True)),
    (
        "POST",
        MODERN,
        call("end_session", arguments={"session_id": "x"}),
        Reading("x", ends=True, reply_to=b"3", last_words=True),
    ),
    ("POST", MODERN, call(arguments="session_id"), Reading(reply_to=b"3", last_words=True)),
    ("POST", MODERN, {"id": 4, "method": "tools/list", "params": {"name": "create_session"}}, Reading(reply_to=b"4")),
]


@pytest.mark.parametrize(("method", "headers", "body", "expected"), READINGS)
def test_a_request(method: str, headers: list[Header], body: Any, expected: Reading) -> None:
    """The header names the session; without it the body may."""
    head = request(method, "/mcp", headers=headers)
    found = read(Mcp(), head, b"" if body is None else json.dumps(body).encode())
    if not expected.last_words and expected.reply_to:
        found = Reading(found.session, reply_to=found.reply_to)
    assert found == expected


def test_a_request_state_is_an_id_of_any_length() -> None:
    """The same state is the same id, another state another; the app judges it, and it is used once."""
    states = ["v1.a", "v1.b", "v1." + "c" * 100_000, "\ud800"]
    found = [
        read(Mcp(), request("POST", "/mcp", headers=MODERN), json.dumps(call(requestState=state)).encode())
        for state in [*states, *states]
    ]
    assert len({reading.session for reading in found}) == len(states)
    assert all(reading.judged and reading.ends and len(reading.session or "") < 60 for reading in found)


ISSUED = ResponseHead(200, [(b"Content-Type", b"text/event-stream"), (b"Mcp-Session-Id", SID.encode())])


def test_the_reply_of_initialize_gives_out_the_id() -> None:
    """In its head, but not in an error's: the server has dropped that session again."""
    head, reading = request("POST", "/mcp", headers=STREAMS), Reading(starts=True)
    assert Mcp().reply(head, reading, None, ISSUED).issued == SID
    assert Mcp().reply(head, reading, None, ResponseHead(400, ISSUED.headers)).issued is None


RESULTS: list[tuple[Reading, ResponseHead, bytes, str | None]] = [
    (Reading(), JSON, b'{"id":1,"result":{"inputRequests":{},"requestState":"v1.a"}}', "v1.a"),
    (Reading(), SSE, b'event: message\r\ndata: {"id":1,"result":{"requestState":"v1.a"}}\r\n\r\n', "v1.a"),
    (Reading(), JSON, b'{"id":1,"result":{"structuredContent":{"result":"s"}}}', None),
    (Reading(starts=True), JSON, b'{"id":1,"result":{"structuredContent":{"result":"s"}}}', "s"),
    (Reading(starts=True), JSON, b'{"id":1,"result":{"requestState":"v1.a"}}', None),
]


@pytest.mark.parametrize(("reading", "reply", "body", "expected"), RESULTS)
def test_a_result_gives_out_an_id(reading: Reading, reply: ResponseHead, body: bytes, expected: str | None) -> None:
    """A requestState, or the session that create_session made; what comes back names the same."""
    finder = Mcp().reply(request("POST", "/mcp", headers=MODERN), reading, None, reply).finder
    assert finder is not None
    found = finder.feed(body, last=True)
    if expected is not None and expected.startswith("v1."):
        back = json.dumps(call(requestState=expected)).encode()
        expected = read(Mcp(), request("POST", "/mcp", headers=MODERN), back).session
    assert found == expected


def test_nothing_is_looked_for_in_a_sessions_replies() -> None:
    """They cost nothing."""
    head = request("POST", "/mcp", headers=NAMED)
    assert Mcp().reply(head, Reading(SID), SID, JSON).finder is None


def test_a_lost_session_is_not_found() -> None:
    """404 with the JSON-RPC error that clients know, the request's id, and the facts."""
    reply = Mcp().own_reply("session_gone", request("POST", "/mcp"), Reading(SID, reply_to=b'"a"'), FACTS)
    content = json.loads(reply.body)
    assert (reply.status, content["id"], content["error"]["code"]) == (404, "a", -32600)
    assert content["error"]["message"] == "Session not found"
    assert content["error"]["data"]["worker"] == 1
    assert json.loads(Mcp().own_reply("session_gone", request("GET"), Reading(SID), FACTS).body)["id"] is None


def test_other_errors_leave_the_transport_up() -> None:
    """A session's request gets a JSON-RPC error in a reply of 200; an initialize gets the status."""
    ours = Mcp().own_reply("claim_timeout", request("POST"), Reading(SID, reply_to=b"1"), FACTS)
    assert (ours.status, json.loads(ours.body)["error"]["code"]) == (200, -32603)
    new = Mcp().own_reply("table_full", request("POST"), Reading(starts=True, reply_to=b"0"), FACTS)
    assert (new.status, dict(new.headers)[b"retry-after"]) == (503, b"1")


def test_last_words() -> None:
    """A stream that answers a request ends with its error; one that answers none just ends; the rest breaks off."""
    head = request("POST", "/mcp", headers=NAMED)
    words = Mcp().last_words(head, Reading(SID, reply_to=b"5"), SSE, FACTS)
    assert words is not None
    lines = [line for line in words.decode().split("\r\n") if line]
    assert lines[0] == "event: message"
    assert json.loads(lines[1].removeprefix("data: "))["id"] == 5
    assert Mcp().last_words(head, Reading(SID), SSE, FACTS) == b""
    assert Mcp().last_words(head, Reading(SID, reply_to=b"5"), JSON, FACTS) is None
    zipped = ResponseHead(200, [*SSE.headers, (b"content-encoding", b"gzip")])
    assert Mcp().last_words(head, Reading(SID, reply_to=b"5"), zipped, FACTS) is None


STREAM = [(b"accept", b"text/event-stream")]
SSE_READINGS = [
    ("GET", b"", STREAM, Reading(starts=True, lasts=True, last_words=True)),
    ("GET", b"", [], Reading()),
    ("POST", b"session_id=abc", [], Reading("abc")),
    ("POST", b"sessionId=abc", [], Reading("abc")),
    ("POST", b"other=abc", STREAM, Reading()),
]


@pytest.mark.parametrize(("method", "query", "headers", "expected"), SSE_READINGS)
def test_a_request_of_http_and_sse(method: str, query: bytes, headers: list[Header], expected: Reading) -> None:
    """The query names the session; a GET of the stream starts one, and it lasts as long."""
    assert read(McpSse(), request(method, "/sse", query=query, headers=headers)) == expected


ENDPOINTS = [
    (b"event: endpoint\r\ndata: /messages/?session_id=abc\r\n\r\n", "abc"),
    (b"event: endpoint\ndata: http://h/root/messages?x=1&sessionId=a-b\n\n", "a-b"),
    (b"event: message\ndata: /messages/?session_id=abc\n\n", None),
    (b"event: endpoint\ndata: /messages/\n\n", None),
]


@pytest.mark.parametrize(("event", "expected"), ENDPOINTS)
def test_the_first_event_gives_out_the_id(event: bytes, expected: str | None) -> None:
    """Whatever stands before it in the address."""
    head = request("GET", "/sse", headers=STREAM)
    finder = McpSse().reply(head, McpSse().read(head), None, SSE).finder
    assert finder is not None
    assert finder.feed(event, last=False) == expected
    assert McpSse().reply(head, McpSse().read(head), None, ResponseHead(400, SSE.headers)).finder is None
