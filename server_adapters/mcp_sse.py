"""Preset mcp-sse: MCP over HTTP+SSE, the transport before Streamable HTTP.

    the id travels in      query `session_id` (`sessionId` in TypeScript) of the POSTs
    minted by              the server, in the first event of the GET's stream: `event: endpoint`, `data: /messages/?...`
    a session starts       with that GET
    and ends               with it
    unknown ids            404

A client learns that its session is lost from the end of the stream, which comes clean: all that still waits is then
told that the connection is closed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from server_adapters.adapter import Life, Reading, ReplyReading
from server_adapters.custom_sources import QuerySource
from server_adapters.finders import EventStream
from server_adapters.heads import RequestHead, ResponseHead
from server_adapters.mcp import STREAM, is_event_stream
from server_adapters.server_kind import LEFT_ALONE, NO_SESSION, ServerKind

_ENDPOINT = re.compile(rb"[?&]session_?[iI]d=([^&\s]+)")

START = Reading(starts=True, lasts=True, last_words=True)
_SOURCES = (QuerySource("session_id"), QuerySource("sessionId"))


class McpSse(ServerKind):
    """A server of MCP over HTTP+SSE."""

    name = "mcp-sse"
    default_life = Life(window_seconds=5.0, idle_seconds=60.0)

    def read(self, head: RequestHead) -> Reading:
        """The query names the session; a GET of a stream without it starts one."""
        if head.query:
            for source in _SOURCES:
                for session in source.find(head, None):
                    return Reading(session)
        if head.method == "GET" and STREAM in (head.get(b"accept") or b""):
            return START
        return NO_SESSION

    def reply(self, _head: RequestHead, reading: Reading, _session: str | None, reply: ResponseHead) -> ReplyReading:
        """The stream's first event gives out the id."""
        if reading.lasts and reply.status == 200 and is_event_stream(reply):
            return ReplyReading(finder=EventStream(_endpoint))
        return LEFT_ALONE

    def last_words(
        self, _head: RequestHead, _reading: Reading, reply: ResponseHead, _facts: Mapping[str, Any]
    ) -> bytes | None:
        """The end of the stream."""
        return b"" if is_event_stream(reply) else None


def _endpoint(name: bytes, data: bytes) -> str | None:
    match = _ENDPOINT.search(data) if name == b"endpoint" else None
    return None if match is None else match[1].decode("latin-1")
