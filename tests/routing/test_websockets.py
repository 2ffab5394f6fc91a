"""What a WebSocket does to its session's claim, on the worker that serves it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from server_adapters.registry import build
from supervisor.routing.extension import NAME
from supervisor.routing.replies import Refusal, Replies
from supervisor.routing.request import Request
from supervisor.routing.solo import SoloClaims
from supervisor.routing.websockets import WebSockets

OPTIONS = {
    "preset": "custom",
    "sources": [{"query": "sid"}],
    "starts": ["WEBSOCKET /ws"],
    "ends": ["WEBSOCKET /bye"],
    "unknown": "claim",
    "session_close_retry_window_seconds": 30,
}


class Nothing:
    """A worker's counters, or what finds claims of others: there are none."""

    def set(self, name: str, value: int) -> None:
        """Write one."""


def serve(path: str, *, word: str | None = None, accepts: bool = True) -> SoloClaims:
    """One WebSocket from its opening to its end, in which the app may say something of the claim."""

    async def app(scope: dict[str, Any], _receive: Any, send: Any) -> None:
        if accepts:
            await send({"type": "websocket.accept"})
        if word is not None:
            getattr(scope["extensions"][NAME], word)()
        await send({"type": "websocket.close"})

    async def run() -> SoloClaims:
        adapter = build(OPTIONS, None, server="test")
        claims = SoloClaims(Nothing(), adapter.life)  # type: ignore[arg-type]

        async def decide(request: Request) -> None:
            assert request.reading.session is not None
            await sockets.run(request, await claims.take(request.reading.session))

        sockets = WebSockets(app, adapter, claims, None, decide)  # type: ignore[arg-type]
        scope: dict[str, Any] = {
            "type": "websocket",
            "path": path,
            "query_string": b"sid=a",
            "headers": [],
            "extensions": {},
        }
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        await sockets.serve(scope, None, send)  # type: ignore[arg-type]
        assert sent[-1]["type"] == "websocket.close"
        return claims

    return asyncio.run(run())


@pytest.mark.parametrize(("accepts", "is_open"), [(True, True), (False, False)], ids=["accepted", "refused"])
def test_a_websocket_that_starts_a_session(accepts: bool, is_open: bool) -> None:
    """Once it is accepted the session is open; a refused one is a start that failed."""
    own = serve("/ws", accepts=accepts).book.get("a")
    assert own is not None
    assert (own.started, own.open) == (True, is_open)


def test_a_websocket_that_ends_a_session() -> None:
    """The window begins with the socket's end."""
    book = serve("/bye").book
    own = book.get("a")
    assert own is not None
    assert own.ended_at is not None
    assert own.deadline == own.ended_at + 30


def test_an_app_speaks_of_its_claim_in_a_websocket_too() -> None:
    """What it says takes effect at the end, after what the route means."""
    assert serve("/other", word="release").book.get("a") is None
    assert serve("/ws", word="release").book.get("a") is None
    own = serve("/bye", word="hold").book.get("a")
    assert own is not None
    assert own.open


@pytest.mark.parametrize(
    ("extensions", "expected"),
    [
        ({"websocket.http.response": {}}, ["websocket.http.response.start", "websocket.http.response.body"]),
        ({}, ["websocket.close"]),
        (None, ["websocket.close"]),
    ],
    ids=["offered", "not offered", "no extensions"],
)
def test_a_refusal_takes_the_form_that_the_server_has(extensions: Any, expected: list[str]) -> None:
    """A denial response with status and reason; where there is none, close code 1013 and the kind."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def run() -> None:
        adapter = build(OPTIONS, None, server="test")
        claims = SoloClaims(Nothing(), adapter.life)  # type: ignore[arg-type]
        replies = Replies(adapter, None, server="test")  # type: ignore[arg-type]  # nobody owns it

        async def decide(_request: Request) -> None:
            raise Refusal("session_gone", "it is gone")

        sockets = WebSockets(None, adapter, claims, replies, decide)  # type: ignore[arg-type]
        scope: dict[str, Any] = {"type": "websocket", "path": "/ws", "query_string": b"sid=a", "headers": []}
        if extensions is not None:
            scope["extensions"] = extensions
        await sockets.serve(scope, None, send)  # type: ignore[arg-type]
        assert replies.counts["session_gone"] == 1

    asyncio.run(run())
    assert [message["type"] for message in sent] == expected
    if extensions:
        assert (sent[0]["status"], json.loads(sent[1]["body"])["error"]) == (410, "session_gone")
    else:
        assert (sent[0]["code"], sent[0]["reason"]) == (1013, "session_gone")
