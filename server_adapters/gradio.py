"""Preset gradio: gradio's pages, gradio_client, and its API for curl.

    the id travels in      JSON body `session_hash` (queue/join, run, api, cancel, component_server, stream),
                           query `session_hash` (queue/data, deep_link), path heartbeat/<hash> and stream/<hash>/...;
                           for curl: path call/<function>/<event_id>; uploads: query `upload_id`
    minted by              the client; for curl the server, in the JSON reply to POST call/<function>: `event_id`
    a session starts       with its heartbeat, its first join or upload, or that POST
    and ends               after an hour without a request; for curl with the stream of its events
    unknown ids            start afresh

All of it lies below a prefix (/gradio_api/, and the path where the app is mounted). A lost session is told in the words
of gradio's own queue, after which the page loads itself anew: "session_not_found" in a stream, 404 elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from server_adapters.adapter import Life, OwnReply, Reading, ReplyKind, ReplyReading
from server_adapters.custom_sources import QuerySource
from server_adapters.finders import BodyJson
from server_adapters.heads import RequestHead, ResponseHead
from server_adapters.json_paths import JsonPaths
from server_adapters.server_kind import LEFT_ALONE, NO_SESSION, ServerKind
from server_adapters.sessions import session_id

_ROUTE = re.compile(
    r".*?/(?:"
    r"(?P<body>queue/join|run/[^/]+|api/[^/]+|cancel|component_server|stream/[^/]+)"
    r"|(?P<query>queue/data|deep_link)"
    r"|(?P<path>heartbeat|stream)/(?P<session>[^/]+)(?P<rest>/.*)?"
    r"|(?P<call>call(?:/v2)?/[^/]+)(?:/(?P<event>[^/]+))?"
    r"|(?P<upload>upload|upload_progress)"
    r")/?",
    re.DOTALL,
)
_HASH = QuerySource("session_hash")
_UPLOAD = QuerySource("upload_id")
_IN_BODY = JsonPaths(("session_hash",))
_EVENT = ("event_id",)

STOPPED = "Server stopped unexpectedly."
"""What gradio says itself; gradio_client ends its jobs when it reads these words, and waits for ever at others."""


class Gradio(ServerKind):
    """A gradio app."""

    name = "gradio"
    # gradio keeps a session's state for an hour after its heartbeat has ended.
    default_life = Life(window_seconds=5.0, idle_seconds=3600.0, open_idle_seconds=3600.0)

    def read(self, head: RequestHead) -> Reading:
        """Find the session by the route."""
        found = _ROUTE.fullmatch(head.path)
        if found is None or head.websocket:
            return NO_SESSION
        post = head.method == "POST"
        if found["call"] is not None:
            event = session_id(found["event"])
            if event is None:
                return Reading(needs_body=True, starts=True) if post else NO_SESSION
            return Reading(event, ends=True, last_words=True)
        if found["body"] is not None:
            return Reading(needs_body=True, starts=True) if post else NO_SESSION
        if found["path"] is not None:
            heartbeat = found["path"] == "heartbeat"
            # /stream/<event_id>/close names no session.
            return _of(session_id(found["session"]) if heartbeat or found["rest"] != "/close" else None)
        sources = _HASH if found["query"] is not None else _UPLOAD
        for session in sources.find(head, None):
            return _of(session, last_words=found["query"] is not None)
        return NO_SESSION

    def read_body(self, head: RequestHead, reading: Reading, body: bytes) -> Reading:
        """The hash in the body; a call for curl may have one too, and else is a session of its own."""
        session = session_id(_IN_BODY.read(body)[0])
        found = _ROUTE.fullmatch(head.path)
        if session is None:
            started = found is not None and found["call"] is not None
            return Reading(starts=True) if started else NO_SESSION
        return msgspec.structs.replace(reading, session=session, vouched=True, needs_body=False)

    def reply(self, head: RequestHead, reading: Reading, _session: str | None, reply: ResponseHead) -> ReplyReading:
        """The reply to a call for curl gives out its event."""
        if reading.starts and reply.status == 200 and head.method == "POST":
            found = _ROUTE.fullmatch(head.path)
            if found is not None and found["call"] is not None:
                return ReplyReading(finder=BodyJson(_EVENT))
        return LEFT_ALONE

    def own_reply(self, kind: ReplyKind, head: RequestHead, reading: Reading, facts: Mapping[str, Any]) -> OwnReply:
        """JSON with a `detail`, which pages show; in place of a stream of events, its one event."""
        if kind == "session_gone" and head.path.rstrip("/").endswith("/queue/data"):
            return OwnReply(
                200, [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")], _lost(facts)
            )
        return super().own_reply(kind, head, reading, facts)

    def last_words(
        self, _head: RequestHead, _reading: Reading, _reply: ResponseHead, facts: Mapping[str, Any]
    ) -> bytes | None:
        """The event that says that the session is lost."""
        return b"\n\n" + _lost(facts)


def _of(session: str | None, *, last_words: bool = False) -> Reading:
    if session is None:
        return NO_SESSION
    return Reading(session, vouched=True, starts=True, last_words=last_words)


def _lost(facts: Mapping[str, Any]) -> bytes:
    message = {
        "msg": "unexpected_error",
        "message": STOPPED,
        "session_not_found": True,
        "success": False,
        "detail": facts.get("detail", ""),
    }
    return b"data: %b\n\n" % json.dumps(message).encode()
