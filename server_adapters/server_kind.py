"""What the presets of fixed protocols have in common: nothing to configure but how long a claim lives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from server_adapters.adapter import Life, OwnReply, Plain, Reading, ReplyKind, ReplyReading, json_reply
from server_adapters.heads import RequestHead, ResponseHead

NO_SESSION = Reading()
LEFT_ALONE = ReplyReading()


class ServerKind(Plain):
    """A kind of server whose ids are where its protocol says.

    name          the preset's
    default_life  how long claims live where the config does not say
    gone_status   what the server itself answers for an id that it does not know
    """

    name: ClassVar[str]
    default_life: ClassVar[Life]
    gone_status: ClassVar[int] = 404

    def __init__(self, life: Life | None = None) -> None:
        self.life = self.default_life if life is None else life

    def read(self, head: RequestHead, /) -> Reading:
        """Find the session in a request's head."""
        raise NotImplementedError

    def reply(
        self, _head: RequestHead, _reading: Reading, _session: str | None, _reply: ResponseHead, /
    ) -> ReplyReading:
        """No reply gives out an id."""
        return LEFT_ALONE

    def own_reply(
        self, kind: ReplyKind, _head: RequestHead, _reading: Reading, facts: Mapping[str, Any], /
    ) -> OwnReply:
        """JSON; a lost session's with the status that the server has for an unknown one."""
        return json_reply(kind, facts, status=self.gone_status if kind == "session_gone" else None)
