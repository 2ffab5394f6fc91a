"""A relayed request's body at the owner: the ASGI receive that the app is run with."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from supervisor.relay.codec import READS
from supervisor.relay.frames import Open

if TYPE_CHECKING:
    from supervisor.relay.channel import Channel
    from supervisor.relay.reply import Reply

# So many bytes of a body may wait for a slow app before the acceptor is stopped.
HIGH_WATER = 64 * 1024


class Upload:
    """Gives what the server's own request cycle would give: the body as it has come, then http.disconnect.

    over  the client has left, or the reply is complete
    """

    over = False
    _more = False
    _whole: bytes | None = None  # a body that came with the head and was not asked for
    _waiting = 0
    _ended = True  # the end of the body was given, or will be with _whole
    _watched = False  # the acceptor listens to its client
    _event: asyncio.Event | None = None

    def __init__(self, channel: Channel, reply: Reply, request: Open) -> None:
        self._channel = channel
        self._reply = reply
        if request.more_body:
            self._more = True
            self._pieces: list[bytes] = []
            self._ended = False
            self._watched = not request.holds_body
        else:
            self._whole = request.body
            self._watched = request.mode == "placed"

    def __repr__(self) -> str:
        return f"<Upload waiting={self._waiting} more={self._more} over={self.over}>"

    async def receive(self) -> dict[str, Any]:
        """The next piece of the body; http.disconnect when the client has left or the reply is complete."""
        whole = self._whole
        if whole is not None and not self.over:
            self._whole = None
            return {"type": "http.request", "body": whole, "more_body": False}
        while not self.over:
            if not self._ended and (self._waiting or not self._more):
                pieces = self._pieces
                data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
                pieces.clear()
                self._waiting = 0
                self._ended = not self._more
                return {"type": "http.request", "body": data, "more_body": self._more}
            if not self._watched:
                self._watched = True
                self._reply.frame(READS)
            self._channel.resume_reading()
            if self._event is None:
                self._event = asyncio.Event()
            await self._event.wait()
        return {"type": "http.disconnect"}

    def feed(self, data: bytes, *, more: bool) -> None:
        """A piece of the body has come."""
        self._more = more
        if self.over:
            return
        if data:
            self._pieces.append(data)
            self._waiting += len(data)
            if self._waiting > HIGH_WATER:
                self._channel.pause_reading()
        if self._event is not None:
            self._wake()

    def end(self) -> None:
        """Nothing more comes, or matters."""
        self.over = True
        if self._event is not None:
            self._wake()

    def _wake(self) -> None:
        event, self._event = self._event, None
        if event is not None:
            event.set()
