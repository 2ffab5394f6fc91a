"""A resources server as NeMo Gym's are written: a class makes the app and serves it, and the module defines none.

    python gym_server.py --port 8000                                              one worker, plain uvicorn
    gym-supervise run -w 4 --preset gym-resources gym_server.py --port 8000       four, and every episode right

Its routes:

    POST /seed_session  {"start": n}  -> {}
    POST /add           {"number": n} -> {"total": n}
    POST /verify        {"total": n}  -> {"reward": 1.0 or 0.0}
"""

from __future__ import annotations

import argparse
import os
import uuid
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send


class SessionIds:
    """Gives every request a session id, as Gym's own middleware does."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            session = scope["session"]
            session["session_id"] = session.get("session_id", str(uuid.uuid4()))
        await self.app(scope, receive, send)


@dataclass
class AdderServer:
    """Adds numbers up, for each session by itself, in memory."""

    name: str
    host: str = "127.0.0.1"
    port: int = 8000
    totals: dict[str, int] = field(default_factory=dict)

    async def seed_session(self, request: Request) -> Response:
        """Start an episode."""
        self.totals[request.session["session_id"]] = (await request.json())["start"]
        return JSONResponse({})

    async def add(self, request: Request) -> Response:
        """A tool call."""
        session = request.session["session_id"]
        self.totals[session] = self.totals.get(session, 0) + (await request.json())["number"]
        return JSONResponse({"total": self.totals[session], "pid": os.getpid()})

    async def verify(self, request: Request) -> Response:
        """The episode's reward."""
        body: dict[str, Any] = await request.json()
        right = self.totals.pop(request.session["session_id"], None) == body["total"]
        return JSONResponse({**body, "reward": 1.0 if right else 0.0})

    async def whoami(self, _request: Request) -> Response:
        """The process that answers."""
        return PlainTextResponse(str(os.getpid()))

    def setup_webserver(self) -> Starlette:
        """The app; its cookie's name is its secret, as Gym has it."""
        cookie = f"{type(self).__name__}___{self.name}"
        return Starlette(
            routes=[
                Route("/seed_session", self.seed_session, methods=["POST"]),
                Route("/add", self.add, methods=["POST"]),
                Route("/verify", self.verify, methods=["POST"]),
                Route("/whoami", self.whoami, methods=["GET"]),
            ],
            middleware=[
                Middleware(SessionMiddleware, secret_key=cookie, session_cookie=cookie),
                Middleware(SessionIds),
            ],
        )

    def run_webserver(self) -> None:
        """Serve until stopped."""
        uvicorn.run(self.setup_webserver(), host=self.host, port=self.port, timeout_keep_alive=30)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8000)
    AdderServer("adder", port=parser.parse_args().port).run_webserver()
