"""The app's lifespan, listened to: a failed start-up keeps its traceback for the supervisor, which shows it once.

uvicorn would log it in each worker and at each try: with 4 workers and 5 tries the cause is 20 screens up.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable
from typing import Any

from supervisor.routing.request import App, Receive, Scope, Send


class Lifespan:
    """An ASGI app around the user's; `failure` is the start-up's traceback, None when there was none."""

    def __init__(self, app: App) -> None:
        self.failure: str | None = None
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass everything on; listen to the lifespan."""
        return (self._run if scope["type"] == "lifespan" else self._app)(scope, receive, send)

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def listen(message: dict[str, Any]) -> None:
            nonlocal started
            if message["type"] == "lifespan.startup.complete":
                started = True
            elif message["type"] == "lifespan.startup.failed":
                self.failure = message.get("message") or "the app said lifespan.startup.failed without a reason"
                message = {"type": "lifespan.startup.failed"}
            await send(message)

        try:
            await self._app(scope, receive, listen)
        except BaseException:
            if not started and self.failure is None:
                self.failure = traceback.format_exc()
            raise
