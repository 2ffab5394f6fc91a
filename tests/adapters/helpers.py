"""Requests, replies, cookies and adapters for the tests of server_adapters."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from itsdangerous import TimestampSigner, URLSafeSerializer

from server_adapters.adapter import Adapter, Reading, ReplyReading
from server_adapters.heads import Header, RequestHead, ResponseHead
from server_adapters.registry import build

NAME = "CounterResourcesServer___counter"
SID = "3b0f5c1e-95b5-4e4c-9a63-31b3c8a6e0aa"
OTHER = "9d7c2f70-41c6-4dd7-a9a1-5a52b5a2b111"
steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For properties: a busy machine is no failure."""

TOKEN = b"x-nemo-gym-session-token"


class At(TimestampSigner):
    """A signer whose clock stands."""

    def __init__(self, secret: str, now: int) -> None:
        super().__init__(secret)
        self.now = now

    def get_timestamp(self) -> int:
        return self.now


def signed(payload: Any, *, secret: str = NAME, at: int | None = None) -> str:
    """A session cookie's value as SessionMiddleware writes it, at a wall time in seconds or now."""
    signer = TimestampSigner(secret) if at is None else At(secret, at)
    return signer.sign(b64encode(json.dumps(payload).encode())).decode()


def cookie(session: str | None = SID, *, name: str = NAME, **extra: Any) -> bytes:
    """A Cookie header that names `session`, in the form of Gym's resources servers."""
    payload = extra if session is None else {"session_id": session, **extra}
    return f"{name}={signed(payload)}".encode()


def token(session: Any = SID, *, secret: str = NAME, tools: Any = None, **extra: Any) -> bytes:
    """Gym's MCP token."""
    payload = {"sid": session, "tools": tools, **extra}
    text = URLSafeSerializer(secret, salt="nemo-gym-mcp-session-token").dumps(payload)
    return text.encode() if isinstance(text, str) else text


def request(
    method: str = "POST",
    path: str = "/increment_counter",
    *,
    cookies: bytes | list[bytes] | None = None,
    headers: list[Header] | None = None,
    query: bytes = b"",
    websocket: bool = False,
) -> RequestHead:
    """One request's head, with headers as a real client's around the given ones."""
    lines = [(b"host", b"127.0.0.1:8000"), (b"accept", b"*/*"), *(headers or ())]
    for value in [cookies] if isinstance(cookies, bytes) else cookies or ():
        lines.append((b"cookie", value))
    lines.append((b"content-type", b"application/json"))
    return RequestHead(method, path, path.encode(), query, lines, websocket)


def reply(status: int = 200, *set_cookies: str, headers: list[Header] | None = None) -> ResponseHead:
    """One reply's head."""
    lines = [(b"content-type", b"application/json"), *(headers or ())]
    return ResponseHead(status, [*lines, *((b"set-cookie", line.encode("latin-1")) for line in set_cookies)])


def set_cookie(payload: Any, *, name: str = NAME, secret: str = NAME) -> str:
    """A Set-Cookie line as SessionMiddleware writes it."""
    return f"{name}={signed(payload, secret=secret)}; path=/; Max-Age=1209600; httponly; samesite=lax"


CLEARED = f"{NAME}=null; path=/; expires=Thu, 01 Jan 1970 00:00:00 GMT; httponly; samesite=lax"


def make(preset: str, **options: Any) -> Adapter:
    """An adapter whose cookie and secret are given."""
    return build({"preset": preset, "cookie": NAME, "secret": NAME, **options}, None, server="test")


def read(adapter: Adapter, head: RequestHead, body: bytes = b"") -> Reading:
    """What the router ends up with: the head's reading, and the body's where that is needed."""
    reading = adapter.read(head)
    return adapter.read_body(head, reading, body) if reading.needs_body else reading


def fields(struct: Reading | ReplyReading) -> dict[str, Any]:
    """The fields that are not at their default."""
    blank = type(struct)()
    return {name: value for name, value in msgspec.structs.asdict(struct).items() if value != getattr(blank, name)}


def call(app: Any, head: RequestHead, body: bytes = b"") -> tuple[int, list[Header], bytes]:
    """Send one request through an ASGI app, in memory; the reply's status, headers and body."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "scheme": "http",
        "method": head.method,
        "path": head.path,
        "raw_path": head.raw_path,
        "root_path": "",
        "query_string": head.query,
        "headers": list(head.headers),
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }
    sent: list[dict[str, Any]] = []
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> dict[str, Any]:
        return next(messages, {"type": "http.disconnect"})

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], [(bytes(key), bytes(value)) for key, value in sent[0]["headers"]], content
