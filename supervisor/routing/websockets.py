"""WebSockets: served where their session is, and refused with a reason where it is another worker's.

They are not relayed in this version. One that reached the wrong worker is never run there: the session would be empty.
"""

from __future__ import annotations

import time
from typing import Any

from server_adapters.adapter import Adapter, Reading
from server_adapters.heads import RequestHead
from shmclaims import AlreadyClaimed
from supervisor.routing import extension, rule
from supervisor.routing.access import Line
from supervisor.routing.claims import Claims
from supervisor.routing.replies import Refusal, Replies, Send
from supervisor.routing.sessions import Owned
from supervisor.routing.taking import Taker


class WebSockets:
    """The session rule for the WebSockets of one worker."""

    def __init__(self, app: Any, adapter: Adapter, claims: Claims, taker: Taker, replies: Replies) -> None:
        self._app = app
        self._adapter = adapter
        self._claims = claims
        self._taker = taker
        self._replies = replies

    async def serve(
        self, head: RequestHead, scope: dict[str, Any], receive: Any, send: Send, line: Line | None = None
    ) -> None:
        """Serve one WebSocket scope; `line` is what its access line will say."""
        reading = self._adapter.read(head)
        try:
            own = await self._hold(reading)
        except Refusal as refusal:
            if line is not None:
                line.session, line.refused = reading.session, refusal.kind
            await self._replies.send_websocket(refusal, head, reading, scope, send)
            return
        if line is not None:
            line.serve_here(reading.session)
        claims, said = self._claims, extension.SessionExtension(self._claims, own)
        scope.setdefault("extensions", {})[extension.NAME] = said
        accepted = False

        async def watched(message: dict[str, Any]) -> None:
            nonlocal accepted
            accepted = accepted or message["type"] == "websocket.accept"
            await send(message)

        if own is not None:
            claims.book.enter(own)
            own.kept = True
        try:
            await self._app(scope, receive, watched if reading.starts else send)
        finally:
            now = time.monotonic()
            if own is not None and reading.starts:
                claims.book.start(own, succeeded=accepted, now=now)
            elif own is not None and reading.ends:
                claims.book.end(own, now)
            said.finish(own, now)
            if own is not None:
                if claims.book.leave(own, now):
                    claims.give_back(own)
                else:
                    claims.touch(own, now)
                claims.publish()

    async def _hold(self, reading: Reading) -> Owned | None:
        """The session of a WebSocket, claimed here when nobody has it; None when it has none."""
        if reading.conflict:
            raise self._taker.conflict(reading)
        session = reading.session
        if session is None:
            return None
        own = self._claims.book.get(session)
        if own is not None:
            return own
        fact = await self._taker.find(session)
        if fact is None:
            if not (reading.vouched or reading.starts):
                return None
            try:
                return await self._taker.take(session, start=reading.starts)
            except AlreadyClaimed as taken:
                fact = rule.ClaimFact(taken.claim.incarnation, live=True)
        if not fact.live:
            raise self._taker.gone(fact.incarnation)
        detail = "another worker holds this session, and WebSockets are not relayed to it; connect again"
        raise Refusal("owner_unreachable", detail, owner=fact.incarnation)
