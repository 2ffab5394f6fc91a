"""`Connection: close` on every reply from the moment on at which this worker accepts no more connections.

A client that learns from the reply that its connection ends opens another one for its next request. One that finds it
cut in the middle of a request cannot know whether that has run, and Gym's client sends it again.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from supervisor.routing.request import App, Receive, Scope, Send

CLOSE = (b"connection", b"close")


class Closing:
    """An ASGI app around another; `on` also holds for requests that were there before it was set.

    `lifespan` gets the lifespan in place of `app`.
    """

    def __init__(self, app: App, lifespan: App | None = None) -> None:
        self.on = False
        self._app = app
        self._lifespan = lifespan or app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass everything on, and mark the replies."""
        kind = scope["type"]
        if kind != "http":
            return (self._lifespan if kind == "lifespan" else self._app)(scope, receive, send)

        def mark(message: dict[str, Any]) -> Awaitable[None]:
            if self.on and message["type"] == "http.response.start":
                headers = [header for header in message.get("headers", ()) if header[0].lower() != b"connection"]
                message = {**message, "headers": [*headers, CLOSE]}
            return send(message)

        return self._app(scope, receive, mark)
