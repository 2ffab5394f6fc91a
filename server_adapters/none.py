"""Preset none: a server without per-session state. Every request runs where it lands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from server_adapters.adapter import Life, OwnReply, Reading, ReplyKind, ReplyReading, json_reply
from server_adapters.heads import Header, RequestHead, ResponseHead

NO_SESSION = Reading()
LEFT_ALONE = ReplyReading()


class NoSessions:
    """Sees no session in anything."""

    name = "none"
    has_sessions = False
    life = Life(explicit=False)

    def read(self, _head: RequestHead) -> Reading:
        """Nothing."""
        return NO_SESSION

    def read_body(self, _head: RequestHead, _reading: Reading, _body: bytes) -> Reading:
        """Nothing."""
        return NO_SESSION

    def mint(self, head: RequestHead, _session: str) -> Sequence[Header]:
        """The headers as they are."""
        return head.headers

    def reply(self, _head: RequestHead, _reading: Reading, _session: str | None, _reply: ResponseHead) -> ReplyReading:
        """Nothing."""
        return LEFT_ALONE

    def read_reply_body(self, _head: RequestHead, _reading: Reading, _reply: ResponseHead, _body: bytes) -> bool:
        """Nothing."""
        return False

    def own_reply(self, kind: ReplyKind, _head: RequestHead, _reading: Reading, facts: Mapping[str, Any]) -> OwnReply:
        """JSON."""
        return json_reply(kind, facts)
