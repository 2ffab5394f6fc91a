"""Preset shiny: Shiny for Python.

the id travels in      path /session/<64 hex>/...: downloads, uploads, dynamic data
minted by              the server, in its WebSocket's first frames: `{"config": {"sessionId": "..."}}`
a session starts       with the WebSocket /websocket/, which names none
and ends               with it
unknown ids            404
"""

from __future__ import annotations

import re

from server_adapters.adapter import Life, Reading
from server_adapters.finders import Finder, FrameJson
from server_adapters.heads import RequestHead
from server_adapters.server_kind import NO_SESSION, ServerKind

_SESSION = re.compile(r"/session/([0-9a-f]{64})/")

WEBSOCKET = Reading(starts=True, lasts=True)


class Shiny(ServerKind):
    """A Shiny app."""

    name = "shiny"
    # Shiny drops a session with its WebSocket.
    default_life = Life(window_seconds=5.0, idle_seconds=60.0)

    def read(self, head: RequestHead) -> Reading:
        """The path names the session; a WebSocket starts one."""
        if head.websocket:
            return WEBSOCKET if head.path.rstrip("/").endswith("/websocket") else NO_SESSION
        found = _SESSION.search(head.path)
        return NO_SESSION if found is None else Reading(found[1])

    def frames(self, _head: RequestHead, reading: Reading) -> Finder | None:
        """One of the first frames gives out the id."""
        return FrameJson(("config", "sessionId")) if reading.starts else None
