"""Preset marimo: marimo's notebooks as apps (`marimo.create_asgi_app`).

    the id travels in      query `session_id` of the WebSocket /ws (or of GET /sse), and of /ws_sync;
                           header `Marimo-Session-Id` on POSTs
    minted by              the browser: `s_` and six characters
    a session starts       with that WebSocket
    and ends               two minutes after it
    files                  path @file/<size>-<name>, named in its frames
    unknown ids            a WebSocket's creates a session; 500 "Invalid session id" for a POST

A page whose session is lost connects again by itself, under its old id, and gets a new session of that id; until then
its POSTs are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from server_adapters.adapter import Life, Reading
from server_adapters.custom_sources import HeaderSource, QuerySource
from server_adapters.heads import RequestHead
from server_adapters.server_kind import NO_SESSION, ServerKind
from server_adapters.sessions import session_id

_QUERY = QuerySource("session_id")
_HEADER = HeaderSource("marimo-session-id")
_NAMED = re.compile(rb"@file/(\d+-[\w.-]+)")
_STREAMS = ("/ws", "/sse")


class Marimo(ServerKind):
    """A marimo app."""

    name = "marimo"
    # marimo keeps a session for 120 s after its last WebSocket.
    default_life = Life(window_seconds=150.0, idle_seconds=150.0)
    gone_status = 410
    names_files = True

    def read(self, head: RequestHead) -> Reading:
        """The header names the session, or the query of a WebSocket."""
        for session in _HEADER.find(head, None):
            return Reading(session, vouched=True)
        _, sign, name = head.path.partition("/@file/")
        if sign and not head.websocket:
            return Reading(session_id(f"@file/{name}"), judged=True)
        stream = head.path.endswith(_STREAMS)
        if not (head.websocket or stream):
            return NO_SESSION
        for session in _QUERY.find(head, None):
            return Reading(session, vouched=True, starts=stream, lasts=stream, replaces_gone=stream)
        return NO_SESSION

    def files(self, frame: bytes) -> Iterable[str]:
        """Images and other large outputs."""
        if b"@file/" not in frame:
            return ()
        return {f"@file/{name.decode()}" for name in _NAMED.findall(frame)}
