"""A counter in FastAPI behind SessionMiddleware, as NeMo Gym's servers are built: every request gets a session, every
reply signs its cookie anew, and a session that this process does not know is made at 0. So a request at the wrong
worker is answered with 200 and a wrong count.

    POST /seed_session  {"count": n}     POST /increment  {"count": n}     -> {"count": ..., "pid": ...}
    POST /verify        -> the same, at a session's end
    GET  /whoami        -> the worker's pid
"""

from __future__ import annotations

import os
from uuid import uuid4

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel
from starlette.middleware.sessions import SessionMiddleware

from benchmarks.servers import COOKIE, SECRET, relaying

relaying.settle()
_counts: dict[str, int] = {}
_pid = os.getpid()


class Count(BaseModel):
    """What is asked for."""

    count: int = 0


class Counted(BaseModel):
    """The session's count, and which process counted."""

    count: int
    pid: int


app = FastAPI()
app.add_middleware(SessionMiddleware, secret_key=SECRET, session_cookie=COOKIE)


def _session(request: Request) -> str:
    session: str = request.session.get("session_id") or str(uuid4())
    request.session["session_id"] = session
    return session


@app.post("/seed_session")
async def seed_session(request: Request, body: Count) -> Counted:
    """Start a session at a count."""
    session = _session(request)
    _counts[session] = body.count
    return Counted(count=body.count, pid=_pid)


@app.post("/increment")
async def increment(request: Request, body: Count) -> Counted:
    """Add to the session's count."""
    session = _session(request)
    _counts[session] = count = _counts.get(session, 0) + body.count
    return Counted(count=count, pid=_pid)


@app.post("/verify")
async def verify(request: Request) -> Counted:
    """The session's count, at its end."""
    return Counted(count=_counts.get(_session(request), 0), pid=_pid)


@app.get("/whoami")
async def whoami() -> PlainTextResponse:
    """Say which process this is."""
    return PlainTextResponse(str(_pid))
