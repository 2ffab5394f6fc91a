"""Notes that come into being with the first one: there is no seed, as on many of Gym's servers.

    POST /add_note    {"text": ...}  -> {"notes": n}
    POST /list_notes  {}             -> {"notes": [...]}
    POST /discard     {}             -> {}

To the routes all sessions look the same, so a session without a seed keeps its worker for `idle_seconds` after its
last request. This server knows better and says so: a session with notes is held open, one without is nothing.
"""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples.counter import SessionIds

SESSION_NAME = "LazyResourcesServer___notes"

notes: dict[str, list[str]] = {}


def claim_of(request: Request) -> Any:
    """The session's claim; None where gym-supervise does not run this server."""
    return request.scope.get("extensions", {}).get("gym_supervise")


async def add_note(request: Request) -> Response:
    """Write a note; with the first one the session begins."""
    session, claim = request.session["session_id"], claim_of(request)
    if session not in notes:
        notes[session] = []
        if claim is not None:
            claim.hold()
            # When the claim ends (a client that went away, by `open_idle_seconds`) nobody can ask for the notes.
            claim.on_end(lambda: notes.pop(session, None))
    notes[session].append((await request.json())["text"])
    return JSONResponse({"notes": len(notes[session])})


async def list_notes(request: Request) -> Response:
    """Read them. A session that has none is let go with this request: there is nothing to come back to."""
    claim = claim_of(request)
    found = notes.get(request.session["session_id"], [])
    if not found and claim is not None:
        claim.release()
    return JSONResponse({"notes": found})


async def discard(request: Request) -> Response:
    """Throw them away. A repeated discard still meets this worker, for the window."""
    notes.pop(request.session["session_id"], None)
    claim = claim_of(request)
    if claim is not None:
        claim.close()
    return JSONResponse({})


app = Starlette(
    routes=[
        Route("/add_note", add_note, methods=["POST"]),
        Route("/list_notes", list_notes, methods=["POST"]),
        Route("/discard", discard, methods=["POST"]),
    ],
    middleware=[
        Middleware(SessionMiddleware, secret_key=SESSION_NAME, session_cookie=SESSION_NAME),
        Middleware(SessionIds),
    ],
)
