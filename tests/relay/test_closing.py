"""`Connection: close` once a worker accepts no more connections."""

from __future__ import annotations

import asyncio
from typing import Any

from relay.conftest import Run
from relay.pair import reply
from relay.test_wire import serving, talk

from supervisor.worker.closing import Closing


def test_a_reply_under_way_when_closing_begins(run: Run) -> None:
    """Replies whose heads have not left when a worker begins to close say so; their clients open other connections."""
    running, go = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        running.set()
        await go.wait()
        await reply(200, b"ok", [(b"content-length", b"2")])(scope, receive, send)

    async def test() -> None:
        closing = Closing(app)
        async with serving(closing, interface="asgi3") as port:
            answer = asyncio.ensure_future(talk(port, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"))
            await running.wait()
            closing.on = True
            go.set()
            assert b"connection: close\r\n" in await answer
            assert b"connection: close\r\n" in await talk(port, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")

    run(test())
