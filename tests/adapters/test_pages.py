"""Presets shiny, marimo and streamlit: where the ids of pages are, and what becomes of lost ones."""

from __future__ import annotations

import json

import pytest
from adapters.helpers import read, request

from server_adapters.adapter import Adapter, Reading
from server_adapters.heads import Header, RequestHead
from server_adapters.marimo import Marimo
from server_adapters.shiny import Shiny
from server_adapters.streamlit import Streamlit

SID = "0123456789abcdef" * 4
UUID = "12345678-9abc-4def-8012-3456789abcde"
PAGE = Reading("s_ab12cd", vouched=True, starts=True, lasts=True, replaces_gone=True)
OFFERED: list[Header] = [(b"sec-websocket-protocol", b"streamlit, xsrf, " + UUID.encode())]
SPLIT: list[Header] = [(b"sec-websocket-protocol", b"streamlit"), (b"sec-websocket-protocol", b"xsrf," + UUID.encode())]
NEW: list[Header] = [(b"sec-websocket-protocol", b"streamlit, PLACEHOLDER_AUTH_TOKEN")]
ID: list[Header] = [(b"marimo-session-id", b"s_ab12cd")]


def socket(path: str, query: bytes = b"", headers: list[Header] | None = None) -> RequestHead:
    """A WebSocket's head."""
    return request("GET", path, query=query, headers=headers, websocket=True)


READINGS: list[tuple[Adapter, RequestHead, Reading]] = [
    (Shiny(), socket("/websocket/"), Reading(starts=True, lasts=True)),
    (Shiny(), socket("/below/websocket/"), Reading(starts=True, lasts=True)),
    (Shiny(), socket("/other"), Reading()),
    (Shiny(), request("GET", f"/session/{SID}/download/save"), Reading(SID)),
    (Shiny(), request("POST", f"/below/session/{SID}/upload/job"), Reading(SID)),
    (Shiny(), request("GET", "/session/short/download/save"), Reading()),
    (Shiny(), request("GET", "/"), Reading()),
    (Marimo(), socket("/ws", b"session_id=s_ab12cd"), PAGE),
    (Marimo(), socket("/below/ws", b"session_id=s_ab12cd&file=x"), PAGE),
    (Marimo(), request("GET", "/sse", query=b"session_id=s_ab12cd"), PAGE),
    (Marimo(), socket("/ws_sync", b"session_id=s_ab12cd"), Reading("s_ab12cd", vouched=True)),
    (Marimo(), socket("/ws"), Reading()),
    (Marimo(), request("POST", "/api/kernel/x", headers=ID), Reading("s_ab12cd", vouched=True)),
    (Marimo(), request("GET", "/", query=b"session_id=s_ab12cd"), Reading()),
    (Streamlit(), socket("/_stcore/stream", headers=NEW), Reading(starts=True, lasts=True, judged=True)),
    (Streamlit(), socket("/_stcore/stream", headers=OFFERED), Reading(UUID, starts=True, lasts=True, judged=True)),
    (Streamlit(), socket("/a/_stcore/stream", headers=SPLIT), Reading(UUID, starts=True, lasts=True, judged=True)),
    (Streamlit(), socket("/other", headers=OFFERED), Reading()),
    (Streamlit(), request("PUT", f"/_stcore/upload_file/{UUID}/f"), Reading(UUID)),
    (Streamlit(), request("DELETE", f"/a/_stcore/upload_file/{UUID}/f"), Reading(UUID)),
    (Streamlit(), request("GET", "/_stcore/health", headers=OFFERED), Reading()),
    (Streamlit(), request("GET", f"/a/media/{SID}.png"), Reading(f"media/{SID}", judged=True)),
    (Streamlit(), request("GET", "/media/other.png"), Reading()),
    (Marimo(), request("GET", "/a/@file/12-x.png"), Reading("@file/12-x.png", judged=True)),
    (Marimo(), request("GET", "/a/@file/"), Reading("@file/", judged=True)),
]


@pytest.mark.parametrize(("adapter", "head", "expected"), READINGS)
def test_a_request(adapter: Adapter, head: RequestHead, expected: Reading) -> None:
    """What names a session, and what starts one, wherever the app is mounted."""
    assert read(adapter, head) == expected


def test_the_id_in_shinys_frames() -> None:
    """In the config that the server sends; the browser's own sockets only are looked at."""
    finder = Shiny().frames(socket("/websocket/"), Reading(starts=True, lasts=True))
    assert finder is not None
    assert finder.feed(b'{"custom":{}}', last=False) is None
    assert finder.feed(json.dumps({"config": {"workerId": "", "sessionId": SID}}).encode(), last=False) == SID
    assert Shiny().frames(socket("/other"), Reading()) is None


def test_the_id_in_streamlits_frames() -> None:
    """In the first message of the runtime, as its protobuf classes write it."""
    initialize = b"\x10\x01" + b"\x0a\x01x" + b"\x32\x24" + UUID.encode()  # a number and another text before it
    session = b"\x0a" + bytes([len(initialize)]) + initialize + b"\x1a\x04name"
    message = b"\x0a\x02id" + b"\x22" + bytes([len(session)]) + session
    finder = Streamlit().frames(socket("/_stcore/stream"), Reading(starts=True, lasts=True))
    assert finder is not None
    for other in (b"\x32\x24" + UUID.encode(), message[:-1], b"\x22\xff", b"\x27", b"\xff" * 20, b""):
        assert finder.feed(other, last=False) is None
    assert finder.feed(message, last=False) == UUID
    assert Streamlit().frames(socket("/other"), Reading()) is None


FILES: list[tuple[Adapter, bytes, set[str]]] = [
    (Streamlit(), f"\x0a\x4d/media/{SID}.png8 /media/{SID}.png /media/short.png".encode(), {f"media/{SID}"}),
    (Streamlit(), b"\xff\x00", set()),
    (Marimo(), b'<img src=./@file/12-a_b.png> \\"@file/3-c.txt\\"', {"@file/12-a_b.png", "@file/3-c.txt"}),
    (Marimo(), b"@file/none", set()),
]


@pytest.mark.parametrize(("adapter", "frame", "expected"), FILES)
def test_files_in_a_frame(adapter: Adapter, frame: bytes, expected: set[str]) -> None:
    """Each is what a request for it names."""
    assert adapter.names_files
    assert set(adapter.files(frame)) == expected
    assert {read(adapter, request("GET", f"/{name}.png")).session for name in expected if "@" not in name} <= expected
    assert {read(adapter, request("GET", f"/{name}")).session for name in expected if "@" in name} <= expected


LOST = [(Shiny(), 404), (Marimo(), 410), (Streamlit(), 400)]


@pytest.mark.parametrize(("adapter", "status"), LOST)
def test_a_lost_session(adapter: Adapter, status: int) -> None:
    """The status that the server has for an unknown id."""
    assert adapter.own_reply("session_gone", request("PUT"), Reading("a"), {}).status == status
    assert adapter.own_reply("overloaded", request("PUT"), Reading("a"), {}).status == 503
