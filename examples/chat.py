"""A counter for each client over Socket.IO: polling, WebSockets, and the upgrade from one to the other.

    event `add` with a number -> the client's sum so far

Needs the `python-socketio` package.
"""

from __future__ import annotations

from typing import Any

import socketio

server = socketio.AsyncServer(async_mode="asgi")
sums: dict[str, int] = {}


@server.event
async def connect(sid: str, _environ: dict[str, Any]) -> None:
    """A client has come."""
    sums[sid] = 0


@server.event
async def add(sid: str, number: int) -> int:
    """Add to the client's sum."""
    sums[sid] += number
    return sums[sid]


@server.event
async def disconnect(sid: str, _reason: str) -> None:
    """It has gone."""
    sums.pop(sid, None)


app = socketio.ASGIApp(server)
