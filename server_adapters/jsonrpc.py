"""JSON-RPC errors, as MCP's clients read them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from server_adapters.adapter import FACTS, RETRY_AFTER_SECONDS, STATUS_OF, OwnReply, ReplyKind
from server_adapters.heads import Header

INVALID_REQUEST = -32600
INTERNAL_ERROR = -32603


def error_text(kind: ReplyKind, facts: Mapping[str, Any], *, code: int, message: str, reply_to: bytes) -> bytes:
    """A JSON-RPC error: `reply_to` is the request's id as JSON; the facts are in its `data`."""
    data = {"error": kind, "detail": facts.get("detail", "")} | {name: facts.get(name) for name in FACTS}
    error = {"code": code, "message": message, "data": data}
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (reply_to or b"null", json.dumps(error).encode())


def error_reply(
    kind: ReplyKind,
    facts: Mapping[str, Any],
    *,
    status: int | None = None,
    code: int,
    message: str,
    reply_to: bytes,
) -> OwnReply:
    """An own reply whose body is a JSON-RPC error; `status` is the kind's own where it is None."""
    body = error_text(kind, facts, code=code, message=message, reply_to=reply_to)
    headers: Sequence[Header] = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
    ]
    code_of_kind = STATUS_OF[kind]
    if code_of_kind == 503:
        headers = [*headers, (b"retry-after", b"%d" % RETRY_AFTER_SECONDS)]
    return OwnReply(code_of_kind if status is None else status, headers, body)
