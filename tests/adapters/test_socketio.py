"""Preset socketio: where Engine.IO's ids are, and what its clients are told."""

from __future__ import annotations

import json

import pytest
from adapters.helpers import read, request

from server_adapters.adapter import Reading
from server_adapters.heads import ResponseHead
from server_adapters.socketio import SocketIO

SID = "kXM4Lb9-abcdefghAAAA"
FACTS = {"detail": "gone", "session": SID}

READINGS = [
    ("GET", b"EIO=4&transport=polling&t=1", False, Reading(starts=True)),
    ("GET", b"EIO=4&transport=polling&sid=" + SID.encode(), False, Reading(SID)),
    ("POST", b"EIO=4&transport=polling&sid=" + SID.encode(), False, Reading(SID)),
    ("GET", b"EIO=4&transport=websocket&sid=" + SID.encode(), True, Reading(SID, lasts=True)),
    ("GET", b"EIO=4&transport=websocket", True, Reading(starts=True, lasts=True)),
    ("GET", b"EIO=4&transport=polling&sid=", False, Reading(starts=True)),
    ("POST", b"EIO=4&transport=polling", False, Reading()),
    ("OPTIONS", b"EIO=4&transport=polling", False, Reading()),
    ("GET", b"sid=another", False, Reading()),
    ("GET", b"", True, Reading()),
]


@pytest.mark.parametrize(("method", "query", "websocket", "expected"), READINGS)
@pytest.mark.parametrize("path", ["/socket.io/", "/deep/down/"])
def test_a_request(path: str, method: str, query: bytes, websocket: bool, expected: Reading) -> None:
    """The query tells, wherever the app is mounted; without an id a session starts."""
    assert read(SocketIO(), request(method, path, query=query, websocket=websocket)) == expected


def test_the_handshake_gives_out_the_id() -> None:
    """In the first poll's body, and in a WebSocket's first frame; nowhere else is it looked for."""
    handshake = f'0{{"sid":"{SID}","upgrades":["websocket"]}}'.encode()
    head, reading = request("GET", query=b"EIO=4&transport=polling"), Reading(starts=True)
    finder = SocketIO().reply(head, reading, None, ResponseHead(200, [])).finder
    assert finder is not None
    assert finder.holds_head
    assert finder.feed(handshake, last=True) == SID
    frames = SocketIO().frames(head, Reading(starts=True, lasts=True))
    assert frames is not None
    assert frames.feed(handshake, last=False) == SID
    assert frames.over
    assert SocketIO().frames(head, Reading(SID, lasts=True)) is None
    assert SocketIO().reply(head, Reading(SID), SID, ResponseHead(200, [])).finder is None
    assert SocketIO().reply(head, reading, None, ResponseHead(401, [])).finder is None


def test_a_lost_session_is_invalid() -> None:
    """400 with the JSON text of python-engineio; other replies are the usual ones."""
    reply = SocketIO().own_reply("session_gone", request("GET"), Reading(SID), FACTS)
    assert (reply.status, json.loads(reply.body)) == (400, f"Invalid session {SID}")
    assert SocketIO().own_reply("table_full", request("GET"), Reading(), FACTS).status == 503
