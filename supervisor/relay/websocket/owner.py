"""The owner's side of a relayed WebSocket: the ASGI receive and send that its app is run with.

It takes and refuses the messages that a server of the app's own would, in the same states, so that an app cannot tell.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from supervisor.relay.codec import ENDED, FAILED, TAKEN, encode, last_word, piece_word, text_word
from supervisor.relay.frames import CHUNK, JOINED, Ack, Frame, Last, Message, Piece, ProtocolError, Text
from supervisor.relay.websocket.pieces import join

if TYPE_CHECKING:
    from supervisor.relay.channel import Channel

# So many bytes of messages may wait for a slow app before the acceptor is stopped.
HIGH_WATER = 64 * 1024

ABNORMAL = 1006
SERVICE_RESTART = 1012

_FIELDS = {
    "websocket.accept": ("subprotocol", "headers"),
    "websocket.close": ("code", "reason"),
    "websocket.http.response.start": ("status", "headers"),
}


class ClientLeft(OSError):
    """What ASGI wants `send` to raise when the client has gone."""


class State(Enum):
    """What may be sent next."""

    CONNECTING = auto()
    OPEN = auto()
    DENYING = auto()
    CLOSED = auto()


class OwnerSocket:
    """One relayed WebSocket of this worker; to the server it is a request's reply and its upload in one.

    complete      the handshake has been answered
    disconnected  the client has gone, its acceptor has, or this worker has closed it
    """

    lacks = "completing handshake"

    def __init__(self, channel: Channel) -> None:
        self.disconnected = False
        self.task: asyncio.Task[None] | None = None
        self._channel = channel
        self._state = State.CONNECTING
        self._ended = False
        self._greeted = False
        self._messages: deque[dict[str, Any]] = deque()
        self._sizes: deque[int] = deque()
        self._waiting = 0  # bytes of them
        self._pieces: list[bytes] = []  # of a message that is not complete
        self._gone: dict[str, Any] | None = None
        self._event: asyncio.Event | None = None
        self._turn = asyncio.Lock()  # the pieces of a large message stay together

    def __repr__(self) -> str:
        return f"<OwnerSocket {self._state.name} messages={len(self._messages)} left={self.disconnected}>"

    @property
    def complete(self) -> bool:
        """The handshake has been answered."""
        return self._state is State.OPEN or self._state is State.CLOSED

    # ASGI

    async def receive(self) -> dict[str, Any]:
        """The next message of the client; websocket.disconnect when it has gone and all it sent has been taken."""
        if not self._greeted:
            self._greeted = True
            return {"type": "websocket.connect"}
        while not self._messages:
            if self._gone is not None:
                return self._gone.copy()
            self._channel.resume_reading()
            if self._event is None:
                self._event = asyncio.Event()
            await self._event.wait()
        self._waiting -= self._sizes.popleft()
        if self._waiting <= HIGH_WATER:
            self._channel.resume_reading()
        return self._messages.popleft()

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message to the client; waits while it does not take what was sent before.

        Raises:
            ClientLeft: it has gone.
            RuntimeError: the message does not belong there.

        """
        async with self._turn:
            await self._channel.drain()
            if self.disconnected:
                raise ClientLeft
            await self._send(message["type"], message)

    async def _send(self, kind: str, message: dict[str, Any]) -> None:
        state = self._state
        if state is State.OPEN and kind == "websocket.send":
            data, text = message.get("bytes"), message.get("text")
            if data is not None:
                await self._write(bytes(data), last_word)
            elif text is not None:
                await self._write(text.encode(), text_word)
        elif state is State.DENYING and kind == "websocket.http.response.body":
            more = message.get("more_body", False)
            await self._write(bytes(message.get("body", b"")), piece_word if more else last_word)
            if not more:
                self._state = State.CLOSED
        elif state is State.CONNECTING and kind in _FIELDS:
            self._write_message(kind, message)
            if kind == "websocket.accept":
                self._state = State.OPEN
            else:
                self._state = State.CLOSED if kind == "websocket.close" else State.DENYING
        elif state is State.OPEN and kind == "websocket.close":
            self._write_message(kind, message)
            self._state = State.CLOSED
        else:
            raise RuntimeError(f"{_EXPECTED[state]}, found {kind!r}")

    def _write_message(self, kind: str, message: dict[str, Any]) -> None:
        content: dict[str, Any] = {"type": kind}
        for name in _FIELDS[kind]:
            if name in message:
                value = message[name]
                content[name] = [(bytes(key), bytes(item)) for key, item in value] if name == "headers" else value
        self._channel.write(encode(Message(content)))

    async def _write(self, data: bytes, last: Callable[[int], bytes]) -> None:
        channel = self._channel
        size = len(data)
        if size <= JOINED:
            channel.write(last(size) + data)
            return
        view = memoryview(data)
        for start in range(0, size, CHUNK):
            await channel.drain()
            if self.disconnected:
                raise ClientLeft
            piece = view[start : start + CHUNK]
            word = last if start + CHUNK >= size else piece_word
            channel.write_two(word(len(piece)), piece)

    # for the channel

    def feed(self, frame: Frame) -> None:
        """A frame of the acceptor has come."""
        if self._ended:
            return
        if type(frame) is Piece:
            self._pieces.append(frame.data)
        elif type(frame) is Last:
            data = join(self._pieces, frame.data)
            self._put({"type": "websocket.receive", "bytes": data}, len(data))
        elif type(frame) is Text:
            data = join(self._pieces, frame.data)
            self._put({"type": "websocket.receive", "text": data.decode()}, len(data))
        elif type(frame) is Message and frame.content.get("type") == "websocket.disconnect":
            self._leave(frame.content)
        else:
            raise ProtocolError(f"{frame!r} from an acceptor in a WebSocket")

    def lost(self) -> None:
        """The acceptor has gone."""
        self._leave({"type": "websocket.disconnect", "code": ABNORMAL})

    def close(self) -> None:
        """This worker ends: the client sees what its own server would tell it, and the app its disconnect."""
        if not (self._ended or self.disconnected):
            if self._state is State.OPEN:
                self._write_message("websocket.close", {"code": SERVICE_RESTART})
            elif self._state is not State.CLOSED:
                self.fail()
        self._leave({"type": "websocket.disconnect", "code": SERVICE_RESTART})

    # for the server

    def take(self) -> None:
        """Say that it is taken."""
        self._channel.write(TAKEN)

    def refuse(self, ack: Ack) -> None:
        """Nothing runs."""
        if not self.disconnected:
            self._channel.refuse(ack)

    def fail(self) -> None:
        """The app has raised."""
        self._end(FAILED)

    async def drive(self, app: Coroutine[Any, Any, None]) -> None:
        """Await `app`, and say that it has returned."""
        with contextlib.suppress(ClientLeft):  # not caught by the app: no fault of its own
            await app
        self._end(ENDED)

    def _end(self, word: bytes) -> None:
        if not self._ended:
            self._ended = True
            self._pieces.clear()
            self._messages.clear()
            self._channel.write(word)
            self._channel.resume_reading()  # to hear of the connection's end

    def _put(self, message: dict[str, Any], size: int) -> None:
        if self._gone is not None:
            return
        self._messages.append(message)
        self._sizes.append(size)
        self._waiting += size
        if self._waiting > HIGH_WATER:
            self._channel.pause_reading()
        self._wake()

    def _leave(self, message: dict[str, Any]) -> None:
        if self._gone is None:
            self._gone = message
            self.disconnected = True
            self._wake()

    def _wake(self) -> None:
        event, self._event = self._event, None
        if event is not None:
            event.set()


_EXPECTED = {
    State.CONNECTING: "expected 'websocket.accept', 'websocket.close' or 'websocket.http.response.start'",
    State.OPEN: "expected 'websocket.send' or 'websocket.close'",
    State.DENYING: "expected 'websocket.http.response.body'",
    State.CLOSED: "expected nothing after the WebSocket's end",
}
