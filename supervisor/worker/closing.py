"""`Connection: close` on every reply from the moment on at which this worker accepts no more connections.

A client that learns from the reply that its connection ends opens another one for its next request. One that finds it
cut in the middle of a request cannot know whether that has run, and Gym's client sends it again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any

from supervisor.relay.direct import direct
from supervisor.routing.request import App, Receive, Scope, Send

CLOSE = (b"connection", b"close")


class Closing:
    """An ASGI app around another; `begin` also holds for requests that were there before it was called."""

    def __init__(self, app: App) -> None:
        self.on = False
        self._app = app
        self._direct = direct()

    def begin(self, connections: Iterable[Any]) -> None:
        """Mark every reply whose head has not left yet; `connections` are the server's."""
        self.on = True
        for connection in connections:
            cycle: Any = getattr(connection, "cycle", None)
            if self._direct.knows(cycle) and not cycle.response_started:
                cycle.keep_alive = False

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass everything on, and mark the replies."""
        if scope["type"] != "http" or (not self.on and self._direct.knows(getattr(send, "__self__", None))):
            return self._app(scope, receive, send)

        def mark(message: dict[str, Any]) -> Awaitable[None]:
            if self.on and message["type"] == "http.response.start":
                headers = [header for header in message.get("headers", ()) if header[0].lower() != b"connection"]
                message = {**message, "headers": [*headers, CLOSE]}
            return send(message)

        return self._app(scope, receive, mark)
