"""The Gym-like app with streams that have no end; what becomes of them is noted in the folder NOTES."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from whole.apps import NAME, ROUTES, AssignId


def note(what: str) -> None:
    """Leave a file that says what happened."""
    (Path(os.environ["NOTES"]) / f"{what}.{os.getpid()}").touch()


async def until_told(websocket: WebSocket) -> None:
    """Says nothing until it is told that its client is gone."""
    await websocket.accept()
    try:
        await websocket.receive_text()
    except WebSocketDisconnect as gone:
        note(f"websocket-{gone.code}")


class Events:
    """GET /events: a stream that ends when the app is told that its client is gone."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve /events, pass everything else on."""
        if scope["type"] != "http" or scope["path"] not in ("/events", "/deaf"):
            await self.app(scope, receive, send)
            return
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"first", "more_body": True})
            while (await receive())["type"] != "http.disconnect":
                pass
            note("told")
            if scope["path"] == "/deaf":
                await asyncio.sleep(600)
        except asyncio.CancelledError:
            note("cancelled")
            raise


@asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[None]:
    """Notes its end."""
    yield
    note("lifespan")


app = Starlette(
    routes=[*ROUTES, WebSocketRoute("/endless", until_told)],
    middleware=[
        Middleware(SessionMiddleware, secret_key=NAME, session_cookie=NAME),
        Middleware(AssignId),
        Middleware(Events),
    ],
    lifespan=lifespan,
)
