"""A Python process for each session: its variables live from one request to the next.

    POST /seed_session   {}             -> {"pid": of the session's process}
    POST /execute        {"code": ...}  -> {"output": ..., "error": ... or null}
    POST /verify         {"expression": ..., "expected": ...}  -> {"reward": 1.0 or 0.0}
    POST /close_session  {}             -> {}

The processes are children of the worker, started as `multiprocessing` starts them; a session that nobody seeded has
none until it first executes something. One ends with its session's close, and at the latest when gym-supervise ends
the session's claim: then no request can reach it any more. With the worker all of them end, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import multiprocessing
import signal
import traceback
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples.counter import SessionIds

SESSION_NAME = "ReplResourcesServer___repl"


def serve_code(connection: Connection) -> None:
    """The session's process: run what comes, say what it printed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the supervisor
    variables: dict[str, Any] = {}
    while True:
        try:
            code = connection.recv()
        except EOFError:
            return
        output, error = io.StringIO(), None
        try:
            with contextlib.redirect_stdout(output):
                exec(code, variables)
        except BaseException:
            error = traceback.format_exc(limit=-1)
        connection.send((output.getvalue(), error))


class Repl:
    """One session's process, as the worker sees it. Requests of one session take turns."""

    def __init__(self) -> None:
        self._connection, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=serve_code, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """Of the process."""
        return self._process.pid

    async def execute(self, code: str) -> tuple[str, str | None]:
        """Run code; what it printed, and the traceback of what it raised."""
        async with self._turn:
            try:
                self._connection.send(code)
                await readable(self._connection)
                output, error = self._connection.recv()
            except (EOFError, OSError):
                return "", "the session's process has ended"
            return output, error

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.join()
        self._connection.close()


async def readable(connection: Connection) -> None:
    """Wait without a thread: a process that is forked beside threads may inherit their locks."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(connection.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(connection.fileno())


repls: dict[str, Repl] = {}


def repl_of(request: Request) -> Repl:
    """The session's process; started where there is none."""
    session = request.session["session_id"]
    repl = repls.get(session)
    if repl is None:
        repl = repls[session] = Repl()
        claim = request.scope.get("extensions", {}).get("gym_supervise")
        if claim is not None:
            claim.on_end(lambda: end_of(session))
    return repl


def end_of(session: str) -> None:
    """End a session's process, if it has one."""
    repl = repls.pop(session, None)
    if repl is not None:
        repl.end()


async def seed_session(request: Request) -> Response:
    """Start the session's process."""
    return JSONResponse({"pid": repl_of(request).pid})


async def execute(request: Request) -> Response:
    """Run code in it."""
    output, error = await repl_of(request).execute((await request.json())["code"])
    return JSONResponse({"output": output, "error": error})


async def verify(request: Request) -> Response:
    """Compare an expression's value, as text, with the expected one."""
    body = await request.json()
    output, _ = await repl_of(request).execute(f"print({body['expression']})")
    return JSONResponse({"reward": 1.0 if output.strip() == str(body["expected"]) else 0.0})


async def close_session(request: Request) -> Response:
    """End it."""
    end_of(request.session["session_id"])
    return JSONResponse({})


@contextlib.asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[None]:
    """What is left ends with the worker."""
    yield
    for session in list(repls):
        end_of(session)


app = Starlette(
    routes=[
        Route("/seed_session", seed_session, methods=["POST"]),
        Route("/execute", execute, methods=["POST"]),
        Route("/verify", verify, methods=["POST"]),
        Route("/close_session", close_session, methods=["POST"]),
    ],
    middleware=[
        Middleware(SessionMiddleware, secret_key=SESSION_NAME, session_cookie=SESSION_NAME),
        Middleware(SessionIds),
    ],
    lifespan=lifespan,
)
