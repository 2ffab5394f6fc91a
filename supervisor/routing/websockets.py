"""WebSockets by the session rule: run where their session is, relayed to where it is, or refused with a reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from server_adapters.adapter import Adapter
from supervisor.routing import extension
from supervisor.routing.access import Line
from supervisor.routing.claims import Claims
from supervisor.routing.replies import Refusal, Replies
from supervisor.routing.request import App, Receive, Request, Scope, Send, request_head
from supervisor.routing.sessions import Owned
from supervisor.routing.websocket_visit import WebSocketVisit

Decide = Callable[[Request], Awaitable[None]]


class WebSockets:
    """The session rule for the WebSockets of one worker. `decide` is told those whose session is not in its book."""

    def __init__(self, app: App, adapter: Adapter, claims: Claims, replies: Replies, decide: Decide) -> None:
        self._app = app
        self._adapter = adapter
        self._claims = claims
        self._replies = replies
        self._decide = decide

    def elsewhere(self, scope: Scope) -> int | None:
        """The other worker that a WebSocket's session lives in, by its incarnation; None: none, or not sure."""
        reading = self._adapter.read(request_head(scope))
        session = reading.session
        if session is None or reading.conflict or self._claims.book.get(session) is not None:
            return None
        return self._claims.owner(session)

    async def serve(self, scope: Scope, receive: Receive, send: Send, line: Line | None = None) -> None:
        """Serve one WebSocket scope; `line` is what its access line will say."""
        head = request_head(scope)
        reading = self._adapter.read(head)
        request = Request(head, reading, scope, receive, send, line)
        session = reading.session
        if line is not None:
            line.request, line.session = request, session
        try:
            own = None if session is None or reading.conflict else self._claims.book.get(session)
            if own is not None:
                await self.run(request, own)
            else:
                await self._decide(request)
        except Refusal as refusal:
            if line is not None:
                line.owner, line.refused = None, refusal.kind
            await self._replies.send_websocket(refusal, request, session)

    async def run(self, request: Request, own: Owned | None) -> None:
        """Run the app here, under `own`'s claim. No await between finding the session and counting the WebSocket."""
        reading, scope = request.reading, request.scope
        if reading.mints:
            session = reading.session if own is None else own.session
            assert session is not None
            scope["headers"] = list(self._adapter.mint(request.head, session))
        visit = WebSocketVisit(self._adapter, self._claims, self._replies, request, own)
        scope.setdefault("extensions", {})[extension.NAME] = visit.extension
        try:
            await self._app(scope, request.receive, visit.send)
        except Exception:
            if not visit.withheld:  # else its client has gone from under it, and why is in the log
                raise
        finally:
            visit.finish()
            if request.line is not None:
                request.line.serve_here(visit.session)
