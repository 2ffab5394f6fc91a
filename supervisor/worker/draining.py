"""When a worker that drains has nothing left to do.

    its sessions      have ended, and the last request for each of them is LINGER_SECONDS old: what a client sends
                      just after the end (a close after its verify, a request whose reply was lost) finds its owner
    relayed requests  none is in flight
    connections       all have ended: by the client, by the reply that said `Connection: close`, or by the keep-alive
                      time-out. One that was opened and never used has none in uvicorn, and gets the same time. One of
                      HTTP/2 is closed as soon as it is without a request.

Only the linger is shorter than the life of a claim: an ended session keeps its claim for the window, 300 s by default,
and a reload would nearly always last as long as drain_seconds. After it a late request gets 410, never an empty state.
"""

from __future__ import annotations

import asyncio
import time

from supervisor.core.messages import Cut
from supervisor.routing.assembly import Routing
from supervisor.worker.serving import Server

LINGER_SECONDS = 5.0
POLL_SECONDS = 0.05
MOST_NAMED = 100


async def drained(server: Server, routing: Routing) -> None:
    """Return when the worker has nothing left to do; it accepts no more connections already."""
    unused_at = time.monotonic() + server.config.timeout_keep_alive
    while not (server.idle and routing.settled(time.monotonic(), LINGER_SECONDS)):
        if time.monotonic() >= unused_at:
            server.close_unused()
        server.close_idle_streams()
        await asyncio.sleep(POLL_SECONDS)


def cut(routing: Routing) -> Cut | None:
    """The sessions that are lost when the worker ends now; None: none is."""
    sessions = routing.open_sessions()
    if not sessions:
        return None
    return Cut(len(sessions), [session[: min(8, len(session) // 2)] for session in sessions[:MOST_NAMED]])
