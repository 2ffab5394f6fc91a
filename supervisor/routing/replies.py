"""Replies of gym-supervise's own: their facts, their sending, their log line and their count."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from server_adapters.adapter import Adapter, Reading, ReplyKind
from server_adapters.heads import RequestHead, ResponseHead
from shmclaims import WorkerRing
from supervisor.processes.exits import describe
from supervisor.routing.request import Request
from supervisor.routing.shown import prefix, without

logger = logging.getLogger("gym_supervise.router")

Send = Callable[[dict[str, Any]], Awaitable[None]]

TRY_AGAIN_LATER = 1013  # the code of a WebSocket's close


class Refusal(Exception):
    """A request that is answered without, or instead of, the app. `owner` is the incarnation it was meant for."""

    def __init__(self, kind: ReplyKind, detail: str, *, owner: int | None = None) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.owner = owner


class Replies:
    """Sends the refusals of one worker, counts them by kind and logs each once."""

    def __init__(self, adapter: Adapter, ring: WorkerRing, *, server: str) -> None:
        self.counts: Counter[str] = Counter()
        self._adapter = adapter
        self._ring = ring
        self._server = server

    def facts(self, refusal: Refusal, session: str | None) -> dict[str, Any]:
        """The JSON fields of a reply; what is not known is None."""
        row = None if refusal.owner is None else self._ring.row(refusal.owner)
        died_at = None
        if row is not None and row.died_at:
            died_at = datetime.fromtimestamp(row.died_at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return {
            "detail": refusal.detail,
            "server": self._server,
            "session": session,
            "worker": None if row is None else row.index,
            "incarnation": refusal.owner,
            "died_at": died_at,
        }

    async def send(
        self, refusal: Refusal, head: RequestHead, reading: Reading, send: Send, session: str | None
    ) -> None:
        """Send the reply for a refusal, whole."""
        self.note(refusal, head, session)
        reply = self._adapter.own_reply(refusal.kind, head, reading, self.facts(refusal, session))
        await send({"type": "http.response.start", "status": reply.status, "headers": list(reply.headers)})
        await send({"type": "http.response.body", "body": b"" if head.method == "HEAD" else reply.body})

    async def send_websocket(
        self, refusal: Refusal, request: Request, session: str | None, *, accepted: bool = False
    ) -> None:
        """Refuse a WebSocket: with status and body where it is not accepted and the server can, else with 1013."""
        head, send = request.head, request.send
        self.note(refusal, head, session)
        if accepted or "websocket.http.response" not in (request.scope.get("extensions") or {}):
            await send({"type": "websocket.close", "code": TRY_AGAIN_LATER, "reason": refusal.kind})
            return
        reply = self._adapter.own_reply(refusal.kind, head, request.reading, self.facts(refusal, session))
        start = {"type": "websocket.http.response.start", "status": reply.status, "headers": list(reply.headers)}
        await send(start)
        await send({"type": "websocket.http.response.body", "body": reply.body})

    async def end_reply(self, refusal: Refusal, request: Request, session: str | None, begun: ResponseHead) -> None:
        """The owner died after the head of its reply: end that as the client understands it, where there is a way."""
        head, reading = request.head, request.reading
        words = self._adapter.last_words(head, reading, begun, self.facts(refusal, session))
        if words is not None:
            self.note(refusal, head, session)
            await request.send({"type": "http.response.body", "body": words, "more_body": False})

    def note_lost_end(self, head: RequestHead) -> None:
        """A request that ends a session names none: its client has lost the name, and the session stays."""
        self.counts["end_without_session"] += 1
        logger.warning(
            "%s %s ends a session but names none: its client has lost the session's cookie", head.method, head.path
        )

    def note(self, refusal: Refusal, head: RequestHead, session: str | None) -> None:
        """Count a refusal and log it with its reason. Ids are cut: they can be secrets."""
        self.counts[refusal.kind] += 1
        name = "no session" if session is None else f"session {prefix(session)}"
        path = without(session, head.path)
        logger.warning("%s: %s %s, %s: %s", refusal.kind, head.method, path, name, refusal.detail)


def describe_gone(ring: WorkerRing, incarnation: int) -> str:
    """What happened to the owner of a gone session, for the person who reads the reply."""
    row = ring.row(incarnation)
    if row is None:
        return "the worker that held this session has exited; its state is lost"
    when = (
        "" if not row.died_at else " at " + datetime.fromtimestamp(row.died_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    )
    how = "has exited" if row.exit_status is None else f"has ended ({describe(row.exit_status)})"
    why = f": the supervisor ended it, since it {row.reason}" if row.reason else ""
    return f"worker {row.index} (pid {row.pid}), which held this session, {how}{when}{why}; its state is lost"
