"""A server that says itself what becomes of its sessions' claims."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from whole.apps import AssignId

NAME = "ClaimResourcesServer___claims"

ended: list[str] = []
kept: dict[str, Any] = {}


async def whoami(_request: Request) -> Response:
    """The pid of the worker that runs this; without a session."""
    return PlainTextResponse(str(os.getpid()))


def claim_of(request: Request) -> Any:
    """What the app speaks to."""
    return request.scope["extensions"]["gym_supervise"]


async def say(request: Request) -> Response:
    """Say the words of the path, one after the other."""
    claim = claim_of(request)
    for word in request.path_params.get("words", "hold").split(","):
        getattr(claim, word)()
    claim.on_end(lambda: ended.append(claim.session))
    return JSONResponse({"session": claim.session, "pid": os.getpid()})


async def say_later(request: Request) -> Response:
    """Say it from a task of the app's own, after the request is over."""
    claim = claim_of(request)
    claim.hold()
    word = request.path_params["word"]
    over = asyncio.Event()

    async def later() -> None:
        await over.wait()
        getattr(claim, word)()

    kept[claim.session] = asyncio.get_running_loop().create_task(later())
    kept[claim.session + "!"] = over
    return JSONResponse({"session": claim.session, "pid": os.getpid()})


async def now(request: Request) -> Response:
    """Let the task of the session say it, once this request is over as well."""
    over = kept[request.session["session_id"] + "!"]

    async def soon() -> None:
        asyncio.get_running_loop().call_soon(over.set)

    return JSONResponse({}, background=BackgroundTask(soon))


async def nothing(request: Request) -> Response:
    """Hold what is no session."""
    claim = claim_of(request)
    claim.hold()
    return JSONResponse(claim.session)


async def seen(_request: Request) -> Response:
    """The sessions whose claims' ends this worker was told."""
    return JSONResponse(ended)


app = Starlette(
    routes=[
        Route("/whoami", whoami),
        Route("/ended", seen),
        Route("/nothing", nothing),
        Route("/say/{words}", say, methods=["POST"]),
        Route("/verify", say, methods=["POST"]),
        Route("/later/{word}", say_later, methods=["POST"]),
        Route("/now", now, methods=["POST"]),
    ],
    middleware=[Middleware(SessionMiddleware, secret_key=NAME, session_cookie=NAME), Middleware(AssignId)],
)
