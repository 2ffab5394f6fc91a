"""A server that says how much memory its worker has used, and does with a seed's body what servers do."""

from __future__ import annotations

import json
import os
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from whole.apps import AssignId

NAME = "MemoryResourcesServer___memory"


def resident(field: str) -> int:
    """This process's memory in KiB: `VmRSS` now, `VmHWM` at most since the last reset."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field))


async def whoami(_request: Request) -> Response:
    """The pid of the worker that runs this; without a session."""
    return PlainTextResponse(str(os.getpid()))


def reset_peak() -> None:
    """The peak counts from here."""
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")


async def memory(_request: Request) -> Response:
    """Now, and at most since the last time."""
    seen = {"now": resident("VmRSS"), "most": resident("VmHWM")}
    reset_peak()
    return JSONResponse(seen)


async def seed(request: Request) -> Response:
    """Count the body's bytes and keep none."""
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
    return JSONResponse({"bytes": size, "pid": os.getpid(), "session": request.session["session_id"]})


async def seed_whole(request: Request) -> Response:
    """Read the body whole, as FastAPI does."""
    body: Any = await request.body()
    return JSONResponse({"bytes": len(body), "pid": os.getpid(), "last": json.dumps(body[-1:].decode())})


app = Starlette(
    routes=[
        Route("/whoami", whoami),
        Route("/memory", memory),
        Route("/seed_session", seed, methods=["POST"]),
        Route("/close_session", seed_whole, methods=["POST"]),
    ],
    middleware=[Middleware(SessionMiddleware, secret_key=NAME, session_cookie=NAME), Middleware(AssignId)],
)
