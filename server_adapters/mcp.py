"""Preset mcp: MCP over Streamable HTTP.

    the id travels in      up to 2025-11-25: header Mcp-Session-Id on POST, GET and DELETE
                           2026-07-28: `params.requestState`, which the server seals with a key of its own process
                           fastmcp's SessionProvider: `params.arguments.session_id`
    minted by              the server: in the reply's header; `result.requestState`; the result of create_session
    a session starts       with a POST without the header that is answered with one; with create_session
    and ends               with DELETE; with end_session
    unknown ids            404 and JSON-RPC error -32600 "Session not found"; a requestState is the server's to judge

A request that has the header belongs to that session, whatever its body names: its bodies are read for the JSON-RPC id
alone, which an own reply repeats. A client whose reply breaks off would wait for it until its time-out, so the death of
the owner ends a stream with a JSON-RPC error event.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from server_adapters.adapter import Life, OwnReply, Reading, ReplyKind, ReplyReading
from server_adapters.finders import BodyJson, EventStream, Finder
from server_adapters.heads import RequestHead, ResponseHead
from server_adapters.json_paths import JsonPaths, reader_of
from server_adapters.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, error_reply, error_text
from server_adapters.server_kind import LEFT_ALONE, NO_SESSION, ServerKind
from server_adapters.sessions import session_id

SESSION = b"mcp-session-id"
VERSION = b"mcp-protocol-version"
STREAM = b"text/event-stream"

LONGEST_STREAM = 1024 * 1024  # a tool may tell a lot of its progress before its result comes

_STATE = ("result", "requestState")
_CREATED = ("result", "structuredContent", "result")

IN_BODY = Reading(needs_body=True)

_REQUEST = JsonPaths(
    ("id",), ("method",), ("params", "name"), ("params", "requestState"), ("params", "arguments", "session_id")
)


class Mcp(ServerKind):
    """A server of MCP over Streamable HTTP."""

    name = "mcp"
    # The server refuses an ended id itself: a claim outlives it only for requests that are on their way. The SDK takes
    # a requestState for 600 s after it has sealed it, and forgets an idle session after 30 minutes.
    default_life = Life(window_seconds=5.0, idle_seconds=600.0, open_idle_seconds=86400.0)

    def read(self, head: RequestHead) -> Reading:
        """The header names the session; a POST without it starts one, or has its id in the body."""
        session = _last(head, SESSION)
        if session is not None:
            ends, stream = head.method == "DELETE", head.method == "GET"
            return Reading(session, ends=ends, last_words=not ends, needs_body=not (ends or stream))
        # A client names the version in all its requests but initialize, and accepts streams in every POST.
        if head.method == "POST" and (head.get(VERSION) is not None or STREAM in (head.get(b"accept") or b"")):
            return IN_BODY
        return NO_SESSION

    def read_body(self, _head: RequestHead, reading: Reading, body: bytes) -> Reading:
        """The JSON-RPC id, and where no header names a session what else does."""
        number, method, tool, state, argument = _REQUEST.read(body)
        reply_to = b"" if number is None else msgspec.json.encode(number)
        if reading.session is not None:
            reading = msgspec.structs.replace(reading, needs_body=False, reply_to=reply_to)
            if method == "initialize":  # of a client that still has an old session's id; the server would refuse it
                return msgspec.structs.replace(reading, starts=True, judged=True, drops=(SESSION,))
            return reading
        if isinstance(state, str) and state:
            return Reading(_of_state(state), judged=True, ends=True, reply_to=reply_to, last_words=True)
        named = session_id(argument)
        tool = tool if method == "tools/call" and isinstance(tool, str) else ""
        starts = method == "initialize" or (named is None and tool.endswith("create_session"))
        ends = named is not None and tool.endswith("end_session")
        return Reading(named, starts=starts, ends=ends, reply_to=reply_to, last_words=True)

    def reply(self, head: RequestHead, reading: Reading, _session: str | None, reply: ResponseHead) -> ReplyReading:
        """The id in the reply's header; without one, what a call's result gives out."""
        if reply.status >= 400:  # an error's head names a session that the server has already dropped
            return LEFT_ALONE
        for name, value in reply.headers:
            if name.lower() == SESSION:
                return ReplyReading(session_id(value.decode("latin-1")))
        if head.method != "POST" or head.get(SESSION) is not None or not (reading.starts or head.get(VERSION)):
            return LEFT_ALONE
        return ReplyReading(finder=_result_finder(reply, created=reading.starts))

    def own_reply(self, kind: ReplyKind, _head: RequestHead, reading: Reading, facts: Mapping[str, Any]) -> OwnReply:
        """A JSON-RPC error. A lost session is 404: the one status that leaves version 1's transport up."""
        if kind == "session_gone":
            return error_reply(kind, facts, status=404, code=INVALID_REQUEST, message=GONE, reply_to=reading.reply_to)
        # Version 1 tears the whole transport down on any other error; a request gets its error in a reply of 200.
        status = 200 if reading.session is not None and reading.reply_to else None
        message = f"{kind}: {facts.get('detail', '')}"
        return error_reply(kind, facts, status=status, code=INTERNAL_ERROR, message=message, reply_to=reading.reply_to)

    def last_words(
        self, _head: RequestHead, reading: Reading, reply: ResponseHead, facts: Mapping[str, Any]
    ) -> bytes | None:
        """An error event for the request; the end alone for a stream that answers none."""
        if not is_event_stream(reply):
            return None
        if not reading.reply_to:
            return b""
        text = error_text("session_gone", facts, code=INVALID_REQUEST, message=GONE, reply_to=reading.reply_to)
        return b"\r\n\r\nevent: message\r\ndata: %b\r\n\r\n" % text  # the first empty line ends a half-sent event


GONE = "Session not found"


def is_event_stream(reply: ResponseHead) -> bool:
    """Whether the reply is a stream of server-sent events, uncompressed."""
    kind, plain = b"", True
    for name, value in reply.headers:
        known = name.lower()
        if known == b"content-type":
            kind = value.partition(b";")[0].strip().lower()
        elif known == b"content-encoding":
            plain = value.strip().lower() == b"identity"
    return kind == STREAM and plain


def _last(head: RequestHead, name: bytes) -> str | None:
    value = head.get(name)
    return None if value is None else session_id(value.decode("latin-1").strip())


def _of_state(state: str) -> str:
    # A token may be of any length, an id may not.
    return "requestState-" + hashlib.blake2b(state.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _result_finder(reply: ResponseHead, *, created: bool) -> Finder:
    path, make = (_CREATED, str) if created else (_STATE, _of_state)
    if not is_event_stream(reply):
        return BodyJson(path, make=make)
    paths = reader_of(path)

    def read(_name: bytes, data: bytes) -> str | None:
        found = paths.read(data)[0]
        return make(found) if isinstance(found, str) and found else None

    return EventStream(read, longest=LONGEST_STREAM)
