"""The relay's frames, without any I/O: what two workers say to each other over a private Unix socket.

    word (4 bytes, little endian)      payload
    vvvvkkkk llllllll llllllll llllllll  l bytes: MessagePack for structs, the raw bytes for bodies, nothing for signals

The version stands in every word, so that a worker of another release is refused at its first frame. Bodies are raw:
the reader hands on what has come of one without waiting for the rest, so that a large body is neither held nor
joined, whatever sizes the socket delivers. Structs are held until they are complete, in pieces that are joined once.

acceptor -> owner   Open, then for a body that did not fit into it Body ... Body(more=False)
owner -> acceptor   Ack (refusals) or TAKEN, then Head, Body ... Body(more=False), with Message where the app sends
                    something else. READS: the app waits for its client, for a body that is held back until then or
                    for the disconnect. FAILED: the app ended without a whole reply

TAKEN is left out where nobody waits for it: a whole request of a session that the owner has. Any other answer says it
too, and an owner that closes such a connection says it first. Nothing but Open is sent before TAKEN, so a refused
connection is clean for the next request. A WebSocket needs no more than kinds of its own: `Open.type` names it, and
kinds 9 to 15 are free.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Literal

import msgspec

VERSION: Final = 1
# The payload of a struct may be so large: far above any server's limit on heads, far below what hurts.
MAX_STRUCT: Final = 1 << 20
# A request body up to this size travels inside Open, in the same write.
INLINE_BODY: Final = 64 * 1024
# Bodies are cut into frames of this size: a writer looks at the back-pressure between two of them.
CHUNK: Final = 256 * 1024
MAX_BODY: Final = (1 << 24) - 1

HeaderList = list[tuple[bytes, bytes]]


class ProtocolError(Exception):
    """The other side sent, or this side was asked to send, what no frame may be: says what was found and expected."""


class Verdict(enum.IntEnum):
    """What an owner answers before it runs anything."""

    OK = 0
    NOT_OWNER = 1
    DRAINING = 2
    GONE = 3
    REFUSED = 4


class Open(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A request: whom it is for, its scope, and its body as far as it travels along.

    incarnation       the owner that the acceptor means; anybody else answers NOT_OWNER
    mode              "owned": by its claim; "placed": a start sent here to be claimed
    session, flags    the routers' own: the id, and what the acceptor's adapter read
    body, more_body   the whole body, or nothing and more_body
    holds_body        the client waits for `100 Continue`: the body comes after READS only
    extensions        names of the ASGI extensions that the acceptor's server offers and the relay carries
    """

    incarnation: int
    mode: Literal["owned", "placed"]
    session: str | None
    flags: int
    type: Literal["http", "websocket"]
    http_version: str
    method: str
    scheme: str
    path: str
    raw_path: bytes | None
    query_string: bytes
    root_path: str
    headers: HeaderList
    client: tuple[str, int | None] | None
    server: tuple[str, int | None] | None
    asgi: tuple[str, str]
    body: bytes = b""
    more_body: bool = False
    holds_body: bool = False
    extensions: list[str] | None = None


class Ack(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The owner's answer: take one of the constants, or `not_owner` or `refused`.

    incarnation  NOT_OWNER: who owns the session, where it is known
    kind, facts  REFUSED: the kind of the acceptor's own reply, and the facts for it
    """

    verdict: Verdict
    incarnation: int | None = None
    kind: str = ""
    facts: dict[str, Any] = {}

    OK: ClassVar[Ack]
    DRAINING: ClassVar[Ack]
    GONE: ClassVar[Ack]

    @classmethod
    def not_owner(cls, incarnation: int | None = None) -> Ack:
        """This worker does not own the session; `incarnation` does, if that is known."""
        return cls(Verdict.NOT_OWNER, incarnation)

    @classmethod
    def refused(cls, kind: str, facts: Mapping[str, Any] | None = None) -> Ack:
        """The request must not run; the acceptor answers with its own reply of `kind`."""
        return cls(Verdict.REFUSED, None, kind, dict(facts or {}))


Ack.OK = Ack(Verdict.OK)
Ack.DRAINING = Ack(Verdict.DRAINING)
Ack.GONE = Ack(Verdict.GONE)


class Head(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A reply's head, as the app sent it but for hop-by-hop headers.

    trailers  after the body trailers follow, in Message
    """

    status: int
    headers: HeaderList
    trailers: bool = False


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Any other ASGI message of a reply (early hints, trailers), as it is."""

    content: dict[str, Any]


class Body(msgspec.Struct, frozen=True, gc=False):
    """Bytes of a body as they have come; frames and pieces do not correspond. The last one has more=False."""

    data: bytes
    more: bool


class Signal(enum.Enum):
    """Frames without payload."""

    TAKEN = 3
    FAILED = 4
    READS = 5


Frame = Open | Ack | Head | Message | Body | Signal

_OPEN, _ACK, _HEAD, _MESSAGE, _BODY, _LAST = 1, 2, 6, 7, 8, 0
_WORD = struct.Struct("<I")
_pack = _WORD.pack
_unpack = _WORD.unpack_from
_VERSION = VERSION << 28
_LENGTH = (1 << 24) - 1
_encode = msgspec.msgpack.Encoder().encode
_DECODE: dict[int, Callable[[bytes], Open | Ack | Head | Message]] = {
    _OPEN: msgspec.msgpack.Decoder(Open).decode,
    _ACK: msgspec.msgpack.Decoder(Ack).decode,
    _HEAD: msgspec.msgpack.Decoder(Head).decode,
    _MESSAGE: msgspec.msgpack.Decoder(Message).decode,
}
_KIND = {Open: _OPEN, Ack: _ACK, Head: _HEAD, Message: _MESSAGE}
_SIGNALS = {signal.value: signal for signal in Signal}

TAKEN: Final = _pack(_VERSION | Signal.TAKEN.value << 24)
FAILED: Final = _pack(_VERSION | Signal.FAILED.value << 24)
READS: Final = _pack(_VERSION | Signal.READS.value << 24)


def encode(frame: Open | Ack | Head | Message) -> bytes:
    """One frame's bytes.

    Raises:
        ProtocolError: the frame is larger than MAX_STRUCT.
        TypeError, ValueError: the frame holds what MessagePack cannot say.

    """
    payload = _encode(frame)
    size = len(payload)
    if size > MAX_STRUCT:
        name = type(frame).__name__
        raise ProtocolError(f"{name} of {size} bytes; a relayed head may have {MAX_STRUCT}")
    return _pack(_VERSION | _KIND[type(frame)] << 24 | size) + payload


def body_word(size: int, *, more: bool) -> bytes:
    """The word that goes before `size` (at most MAX_BODY) raw bytes of a body."""
    return _pack(_VERSION | (_BODY if more else _LAST) << 24 | size)


class FrameReader:
    """Takes bytes as they come and gives frames; keeps no more than one incomplete struct."""

    __slots__ = ("_held", "_held_size", "_left", "_more", "_wanted")

    def __init__(self) -> None:
        self._held: list[bytes] = []  # pieces of an incomplete word or struct
        self._held_size = 0
        self._wanted = 4  # with as many bytes held there is something to decode
        self._left = 0  # bytes that are still to come of a body frame
        self._more = True  # whether that frame is followed by another one of its body

    def __repr__(self) -> str:
        return f"<FrameReader held={self._held_size} wanted={self._wanted} body_left={self._left}>"

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes, and the bytes of bodies that it brings.

        Raises:
            ProtocolError: wrong version, unknown kind, too large, or not what the kind's struct says. The reader is
                of no use afterwards.

        """
        frames: list[Frame] = []
        at = 0
        if self._held:
            self._held.append(data)
            self._held_size += len(data)
            if self._held_size < self._wanted:
                return frames
            data = b"".join(self._held)
            self._held = []
            self._held_size = 0
            self._wanted = 4
        elif self._left:
            size = len(data)
            if size < self._left:
                self._left -= size
                frames.append(Body(data, True))
                return frames
            at = self._left
            self._left = 0
            frames.append(Body(data if at == size else data[:at], self._more))
        end = len(data)
        while at < end:
            if end - at < 4:
                self._hold(data, at, 4)
                break
            (word,) = _unpack(data, at)
            if word >> 28 != VERSION:
                raise ProtocolError(f"frame of version {word >> 28}; this worker speaks version {VERSION}")
            kind = word >> 24 & 15
            size = word & _LENGTH
            if kind in (_LAST, _BODY):
                at += 4
                stop = at + size
                if stop <= end:
                    frames.append(Body(data[at:stop], kind == _BODY))
                    at = stop
                    continue
                self._more = kind == _BODY
                self._left = stop - end
                if at < end:
                    frames.append(Body(data[at:], True))
                break
            decode = _DECODE.get(kind)
            if decode is None:
                signal = _SIGNALS.get(kind)
                if signal is None or size:
                    raise ProtocolError(f"frame of kind {kind} with {size} bytes; no such frame in version {VERSION}")
                frames.append(signal)
                at += 4
                continue
            if size > MAX_STRUCT:
                raise ProtocolError(f"frame of kind {kind} with {size} bytes; it may have {MAX_STRUCT}")
            stop = at + 4 + size
            if stop > end:
                self._hold(data, at, 4 + size)
                break
            try:
                frames.append(decode(data[at + 4 : stop]))
            except msgspec.MsgspecError as error:
                raise ProtocolError(f"frame of kind {kind} that does not decode: {error}") from error
            at = stop
        return frames

    def _hold(self, data: bytes, at: int, wanted: int) -> None:
        self._held.append(data[at:] if at else data)
        self._held_size = len(data) - at
        self._wanted = wanted
