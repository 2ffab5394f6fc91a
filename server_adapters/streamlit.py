"""Preset streamlit: Streamlit as an ASGI app.

    the id travels in      path _stcore/upload_file/<session>/<file>; on reconnection the third offered subprotocol
    minted by              the server, in its WebSocket's first frame: a protobuf ForwardMsg
    a session starts       with the WebSocket _stcore/stream
    and ends               two minutes after it
    files                  path media/<hash>, named in its frames
    unknown ids            400 for an upload; a WebSocket gets a new session

A page whose session is lost connects again by itself, under its old id, and gets a new session, as from a server that
has been restarted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from server_adapters.adapter import Life, Reading
from server_adapters.custom_sources import SubprotocolSource
from server_adapters.finders import Finder, FrameProtobuf
from server_adapters.heads import RequestHead
from server_adapters.server_kind import NO_SESSION, ServerKind
from server_adapters.sessions import session_id

# Without its extension: in a frame the next field follows at once, and may begin with a letter.
_MEDIA = re.compile(r"/media/([0-9a-f]{32,128})\.")
_NAMED = re.compile(rb"/media/([0-9a-f]{32,128})\.")
_UPLOAD = re.compile(r"/_stcore/upload_file/([^/]+)/")
_OFFERED = SubprotocolSource(3)
_SESSION_ID = (4, 1, 6)  # ForwardMsg's new_session.initialize.session_id


class Streamlit(ServerKind):
    """A Streamlit app."""

    name = "streamlit"
    # Streamlit keeps a session for 120 s after its WebSocket.
    default_life = Life(window_seconds=150.0, idle_seconds=150.0)
    gone_status = 400
    names_files = True

    def read(self, head: RequestHead) -> Reading:
        """The path of an upload names the session; a WebSocket starts one, or goes on with the one that it offers."""
        if not head.websocket:
            found = _MEDIA.search(head.path)
            if found is not None:
                return Reading(f"media/{found[1]}", judged=True)
            found = _UPLOAD.search(head.path)
            return NO_SESSION if found is None else Reading(session_id(found[1]))
        if not head.path.endswith("/_stcore/stream"):
            return NO_SESSION
        offered = next(_OFFERED.find(head, None), None)
        return Reading(offered, starts=True, lasts=True, judged=True)

    def frames(self, _head: RequestHead, reading: Reading) -> Finder | None:
        """The first frame gives out the id."""
        return FrameProtobuf(_SESSION_ID) if reading.starts else None

    def files(self, frame: bytes) -> Iterable[str]:
        """What st.image, st.audio, st.download_button and others show."""
        if b"/media/" not in frame:
            return ()
        return {f"media/{name.decode()}" for name in _NAMED.findall(frame)}
