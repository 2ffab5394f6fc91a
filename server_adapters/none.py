"""Preset none: a server without per-session state. Every request runs where it lands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from server_adapters.adapter import Life, OwnReply, Plain, Reading, ReplyKind, ReplyReading, json_reply
from server_adapters.heads import RequestHead, ResponseHead

NO_SESSION = Reading()
LEFT_ALONE = ReplyReading()


class NoSessions(Plain):
    """Sees no session in anything."""

    name = "none"
    has_sessions = False
    life = Life(explicit=False)

    def read(self, _head: RequestHead) -> Reading:
        """Nothing."""
        return NO_SESSION

    def reply(self, _head: RequestHead, _reading: Reading, _session: str | None, _reply: ResponseHead) -> ReplyReading:
        """Nothing."""
        return LEFT_ALONE

    def own_reply(self, kind: ReplyKind, _head: RequestHead, _reading: Reading, facts: Mapping[str, Any]) -> OwnReply:
        """JSON."""
        return json_reply(kind, facts)
