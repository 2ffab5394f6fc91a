"""Preset socketio: Socket.IO, and Engine.IO below it.

    the id travels in      query `sid` on GET, POST and the upgrade to a WebSocket
    minted by              the server: `0{"sid":"..."}`, in the body of the first poll, or in a WebSocket's first frame
    a session starts       with a request without `sid`
    and ends               with its WebSocket, or when nothing has been polled for longer than the server's ping takes
    unknown ids            400 and the JSON text "Invalid session X", as text/plain

A request is Engine.IO's by its query, wherever the app is mounted. Its clients connect again after any error, once the
polls that wait for the dead worker have ended; those get the gone reply.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from server_adapters.adapter import Life, OwnReply, Reading, ReplyKind, ReplyReading
from server_adapters.custom_sources import QuerySource
from server_adapters.finders import BodyJson, Finder, FrameJson
from server_adapters.heads import RequestHead, ResponseHead
from server_adapters.server_kind import LEFT_ALONE, NO_SESSION, ServerKind

_SID = QuerySource("sid")
_PATH = ("sid",)
_OPEN = b"0"

POLLING = Reading(starts=True)
WEBSOCKET = Reading(starts=True, lasts=True)


class SocketIO(ServerKind):
    """A Socket.IO or Engine.IO server."""

    name = "socketio"
    # A poll waits for the server's ping, every 25 s by default, which is answered within 20 s.
    default_life = Life(window_seconds=5.0, idle_seconds=60.0, open_idle_seconds=60.0)
    gone_status = 400

    def read(self, head: RequestHead) -> Reading:
        """The query names the session; without `sid` one starts."""
        if b"EIO=" not in head.query:
            return NO_SESSION
        for session in _SID.find(head, None):
            return Reading(session, lasts=head.websocket)
        if head.websocket:
            return WEBSOCKET
        return POLLING if head.method == "GET" else NO_SESSION

    def reply(self, _head: RequestHead, reading: Reading, _session: str | None, reply: ResponseHead) -> ReplyReading:
        """The first poll's body gives out the id."""
        if reading.starts and reply.status == 200:
            return ReplyReading(finder=BodyJson(_PATH, prefix=_OPEN))
        return LEFT_ALONE

    def frames(self, _head: RequestHead, reading: Reading) -> Finder | None:
        """So does a WebSocket's first frame."""
        return FrameJson(_PATH, prefix=_OPEN, most=1) if reading.starts else None

    def own_reply(self, kind: ReplyKind, head: RequestHead, reading: Reading, facts: Mapping[str, Any]) -> OwnReply:
        """JSON; of a lost session what the server says of one that it does not know."""
        if kind != "session_gone":
            return super().own_reply(kind, head, reading, facts)
        body = json.dumps(f"Invalid session {facts.get('session')}").encode()
        return OwnReply(
            self.gone_status,
            [
                (b"content-type", b"text/plain"),
                (b"content-length", b"%d" % len(body)),
                (b"cache-control", b"no-store"),
            ],
            body,
        )
