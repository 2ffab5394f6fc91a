"""Preset gradio: where gradio's ids are, and what its clients are told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from adapters.helpers import read, request

from server_adapters.adapter import Reading
from server_adapters.gradio import Gradio
from server_adapters.heads import ResponseHead

HASH = "a1b2c3d4e5"
MINE = Reading(HASH, vouched=True, starts=True)
TOLD = Reading(HASH, vouched=True, starts=True, last_words=True)
BODY = {"data": [1], "session_hash": HASH}

READINGS: list[tuple[str, str, bytes, Any, Reading]] = [
    ("POST", "queue/join", b"__theme=dark", BODY, MINE),
    ("POST", "queue/join/", b"", BODY, MINE),
    ("POST", "queue/join", b"", {"data": []}, Reading()),
    ("POST", "queue/join", b"", [], Reading()),
    ("GET", "queue/join", b"", None, Reading()),
    ("GET", "queue/data", b"session_hash=" + HASH.encode(), None, TOLD),
    ("GET", "queue/data", b"", None, Reading()),
    ("GET", f"heartbeat/{HASH}", b"", None, MINE),
    ("POST", "run/predict", b"", BODY, MINE),
    ("POST", "api/predict", b"", BODY, MINE),
    ("POST", "cancel", b"", BODY, MINE),
    ("POST", "component_server", b"", BODY, MINE),
    ("POST", "stream/event", b"", BODY, MINE),
    ("GET", f"stream/{HASH}/1/2/playlist.m3u8", b"", None, MINE),
    ("POST", "stream/event/close", b"", None, Reading()),
    ("GET", "deep_link", b"session_hash=" + HASH.encode(), None, TOLD),
    ("POST", "upload", b"upload_id=u", None, Reading("u", vouched=True, starts=True)),
    ("GET", "upload_progress", b"upload_id=u", None, Reading("u", vouched=True, starts=True)),
    ("POST", "upload", b"", None, Reading()),
    ("POST", "call/predict", b"", {"data": [1]}, Reading(starts=True)),
    ("POST", "call/predict", b"", BODY, MINE),
    ("POST", "call/v2/predict", b"", {"x": 1}, Reading(starts=True)),
    ("GET", "call/predict/e1", b"", None, Reading("e1", ends=True, last_words=True)),
    ("GET", "call/v2/predict/e1", b"", None, Reading("e1", ends=True, last_words=True)),
    ("GET", "call/predict", b"", None, Reading()),
    ("GET", "config", b"", None, Reading()),
    ("GET", "file=/tmp/x", b"", None, Reading()),
]


@pytest.mark.parametrize("prefix", ["/gradio_api/", "/app/gradio_api/", "/"])
@pytest.mark.parametrize(("method", "route", "query", "body", "expected"), READINGS)
def test_a_request(prefix: str, method: str, route: str, query: bytes, body: Any, expected: Reading) -> None:
    """The route tells where the id is, whatever prefix it has."""
    head = request(method, prefix + route, query=query)
    assert read(Gradio(), head, b"" if body is None else json.dumps(body).encode()) == expected


def test_a_call_for_curl_gives_out_its_event() -> None:
    """In its JSON reply; a page's join has an event, too, which nothing but the page's own session leads to."""
    ok = ResponseHead(200, [(b"content-type", b"application/json")])
    call, join = request("POST", "/gradio_api/call/predict"), request("POST", "/gradio_api/queue/join")
    finder = Gradio().reply(call, Reading(starts=True), None, ok).finder
    assert finder is not None
    assert finder.feed(b'{"event_id":"e1"}', last=True) == "e1"
    assert Gradio().reply(join, MINE, HASH, ok).finder is None
    assert Gradio().reply(call, Reading(starts=True), None, ResponseHead(503, [])).finder is None


def test_a_lost_session() -> None:
    """The queue's stream has gradio's own event; everything else is 404 with the detail that pages show."""
    facts = {"detail": "worker 1 has exited", "session": HASH}
    reply = Gradio().own_reply("session_gone", request("GET", "/gradio_api/queue/data"), TOLD, facts)
    assert reply.status == 200
    event = json.loads(reply.body.removeprefix(b"data: "))
    assert (event["msg"], event["session_not_found"]) == ("unexpected_error", True)
    assert event["message"] == "Server stopped unexpectedly."
    other = Gradio().own_reply("session_gone", request("POST", "/gradio_api/queue/join"), MINE, facts)
    assert (other.status, json.loads(other.body)["detail"]) == (404, "worker 1 has exited")
    words = Gradio().last_words(request("GET"), TOLD, ResponseHead(200, []), facts)
    assert words is not None
    assert words.startswith(b"\n\ndata: {")
