"""A server like those of pages: it gives out ids in its bodies and frames, and takes ids that its clients make."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from uuid import uuid4

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

known: set[str] = set()
counts: dict[str, int] = {}


def new() -> str:
    """A session that only this worker knows."""
    session = uuid4().hex
    known.add(session)
    return session


async def whoami(_request: Request) -> Response:
    """The pid of the worker."""
    return PlainTextResponse(str(os.getpid()))


async def look(request: Request) -> Response:
    """A session by its path: the pid of the worker that knows it, or 404."""
    status = 200 if request.path_params["session"] in known else 404
    return JSONResponse({"pid": os.getpid()}, status_code=status)


async def wait(request: Request) -> Response:
    """A poll that nothing ends."""
    await request.receive()
    await request.receive()
    return PlainTextResponse("left")


async def give_out(_request: Request) -> Response:
    """An id in JSON."""
    return JSONResponse({"text": '"id": "no"', "result": {"id": new()}})


async def stream(_request: Request) -> Response:
    """An id in an event, and then nothing but ticks."""

    async def events() -> AsyncIterator[str]:
        yield ": here it comes\n\n"
        yield f"event: endpoint\ndata: /session/{new()}\n\n"
        while True:
            await asyncio.sleep(0.05)
            yield ": tick\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


async def page(socket: WebSocket) -> None:
    """A page's WebSocket, which gives out an id; it lasts until the page goes."""
    await socket.accept()
    await socket.send_json({"hello": 1})
    session = new()
    await socket.send_json({"config": {"sessionId": session}})
    async for _ in socket.iter_text():
        pass
    known.discard(session)


def counted(session: str) -> dict[str, int]:
    """One more request of a session whose id its client has made."""
    counts[session] = counts.get(session, 0) + 1
    return {"pid": os.getpid(), "n": counts[session]}


async def own_page(socket: WebSocket) -> None:
    """A WebSocket under an id that the page has made."""
    await socket.accept()
    file = f"4-{socket.query_params.get('file') or new()}.txt"
    known.add(file)
    await socket.send_text(json.dumps({**counted(socket.query_params["session_id"]), "file": f"./@file/{file}"}))
    async for _ in socket.iter_text():
        pass
    known.discard(file)


async def file(request: Request) -> Response:
    """A file of a page, in the memory of its worker."""
    return PlainTextResponse("file", status_code=200 if request.path_params["name"] in known else 404)


async def own(request: Request) -> Response:
    """A request under an id that the page has made."""
    return JSONResponse(counted(request.headers["marimo-session-id"]))


app = Starlette(
    routes=[
        Route("/whoami", whoami),
        Route("/open", give_out, methods=["POST"]),
        Route("/sse", stream),
        Route("/session/{session}", look),
        Route("/session/{session}/wait", wait),
        WebSocketRoute("/page", page),
        WebSocketRoute("/ws", own_page),
        Route("/@file/{name}", file),
        Route("/api/own", own, methods=["POST"]),
    ]
)
