"""The relay's frames, without any I/O: what two workers say to each other over a private Unix socket.

    word (5 bytes)                        payload
    length (4, little endian)  vvvvkkkk   MessagePack for structs, the raw bytes for bodies, nothing for signals

The version stands in every word, so that a worker of another release is refused at its first frame. Bodies are raw:
the reader hands on what has come of one without waiting for the rest, so that a large body is neither held nor
joined, whatever sizes the socket delivers. Structs are held until they are complete, in pieces that are joined once.

acceptor -> owner   Open, then for a body that did not fit into it Piece ... Last
owner -> acceptor   Ack (refusals) or TAKEN, then Head, Piece ... Last, with Message where the app sends something else.
                    READS: the app waits for its client, for a body that is held back until then or
                    for the disconnect. FAILED: the app ended without a whole reply, and that is logged

TAKEN is left out where nobody waits for it: a whole request of a session that the owner has. Any other answer says it
too, and an owner that closes such a connection says it first. Nothing but Open is sent before TAKEN, so a refused
connection is clean for the next request.

A WebSocket (`Scope.type` names it) is always TAKEN first. Then both sides send its messages: data as Piece ... Last
where it is binary and Piece ... Text where it is text, everything else as Message; ENDED or FAILED, when the owner's
app has returned or raised, is the last frame, and the connection serves nothing after it. Kinds 11 to 15 are free.
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
# A request's body up to this size travels inside Open, a reply's inside Head.
INLINE_BODY: Final = 64 * 1024
# Bodies are written in pieces of this size: a writer looks at the back-pressure between two of them.
CHUNK: Final = 256 * 1024
# A body's frame may be so large; a multiple of CHUNK.
LARGEST_FRAME: Final = 1 << 30
# A piece above this size is written by itself, behind its word: below it a copy is cheaper than a second call.
# (transport.writelines would be both, but asyncio's of Python 3.12 and 3.13 forgets the back-pressure: CVE-2024-12254.)
COPIED: Final = 16 * 1024
# The same for a WebSocket's message: its reader waits for all of it, and would be woken by the word alone.
JOINED: Final = 64 * 1024

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
    LATE = 5


class Scope(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What an ASGI scope says about a request, under the scope's own names; headers and extensions are in Open."""

    type: Literal["http", "websocket"]
    http_version: str
    method: str
    scheme: str
    path: str
    raw_path: bytes | None
    query_string: bytes
    root_path: str
    client: tuple[str, int | None] | None
    server: tuple[str, int | None] | None
    asgi: dict[str, str]


class Open(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A request: whom it is for, its scope, and its body as far as it travels along.

    incarnation       the owner that the acceptor means; anybody else answers NOT_OWNER
    mode              "owned": by its claim; "placed": a start sent here to be claimed
    session, flags    the routers' own: the id, and what the acceptor's adapter read
    body, more_body   the whole body, or nothing and more_body
    holds_body        the client waits for `100 Continue`: the body comes after READS only
    extensions        names of the ASGI extensions that the acceptor's server offers and the relay carries
    subprotocols      those that the client of a WebSocket offers, in order
    """

    incarnation: int
    mode: Literal["owned", "placed"]
    session: str | None
    flags: int
    scope: Scope
    headers: HeaderList
    body: bytes = b""
    more_body: bool = False
    holds_body: bool = False
    extensions: list[str] | None = None
    subprotocols: list[str] | None = None


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
    LATE: ClassVar[Ack]

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
Ack.LATE = Ack(Verdict.LATE)


class Head(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A reply's head, as the app sent it but for hop-by-hop headers.

    body      the whole body; None: it follows
    trailers  after the body trailers follow, in Message
    """

    status: int
    headers: HeaderList
    body: bytes | None = None
    trailers: bool = False


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Any other ASGI message (early hints, trailers, what a WebSocket has beside its data), as it is."""

    content: dict[str, Any]


class Piece(msgspec.Struct, frozen=True, gc=False):
    """Bytes of a body that goes on, as they have come: frames and pieces do not correspond."""

    data: bytes


class Last(msgspec.Struct, frozen=True, gc=False):
    """The last bytes of a body; maybe none."""

    data: bytes


class Text(msgspec.Struct, frozen=True, gc=False):
    """The last bytes of a WebSocket's text message, which is UTF-8."""

    data: bytes


class Signal(enum.Enum):
    """Frames without payload."""

    TAKEN = 3
    FAILED = 4
    READS = 5
    ENDED = 10


Frame = Open | Ack | Head | Message | Piece | Last | Text | Signal

_OPEN, _ACK, _HEAD, _MESSAGE, _PIECE, _LAST, _TEXT = 1, 2, 6, 7, 8, 0, 9
_WORD = struct.Struct("<IB")
_pack = _WORD.pack
_unpack = _WORD.unpack_from
_encode = msgspec.msgpack.Encoder().encode


def _mark(kind: int) -> int:
    return VERSION << 4 | kind


# By the word's last byte: version and kind in one look.
_DECODE: dict[int, Callable[[bytes], Frame]] = {
    _mark(_OPEN): msgspec.msgpack.Decoder(Open).decode,
    _mark(_ACK): msgspec.msgpack.Decoder(Ack).decode,
    _mark(_HEAD): msgspec.msgpack.Decoder(Head).decode,
    _mark(_MESSAGE): msgspec.msgpack.Decoder(Message).decode,
    _mark(_PIECE): Piece,
    _mark(_LAST): Last,
    _mark(_TEXT): Text,
    **{_mark(signal.value): {b"": signal}.__getitem__ for signal in Signal},
}
_BODIES: dict[int, Callable[[bytes], Frame]] = {_mark(_PIECE): Piece, _mark(_LAST): Last, _mark(_TEXT): Text}
_MARKS: dict[type, int] = {Open: _mark(_OPEN), Ack: _mark(_ACK), Head: _mark(_HEAD), Message: _mark(_MESSAGE)}
_PIECE_MARK = _mark(_PIECE)
_LAST_MARK = _mark(_LAST)
_TEXT_MARK = _mark(_TEXT)

TAKEN: Final = _pack(0, _mark(Signal.TAKEN.value))
FAILED: Final = _pack(0, _mark(Signal.FAILED.value))
READS: Final = _pack(0, _mark(Signal.READS.value))
ENDED: Final = _pack(0, _mark(Signal.ENDED.value))


def encode(frame: Open | Ack | Head | Message) -> bytes:
    """One frame's bytes.

    Raises:
        ProtocolError: the frame is larger than MAX_STRUCT.
        TypeError, ValueError: the frame holds what MessagePack cannot say.

    """
    payload = _encode(frame)
    size = len(payload)
    if size > MAX_STRUCT:
        raise ProtocolError(f"{type(frame).__name__} of {size} bytes; it may have {MAX_STRUCT}")
    return _pack(size, _MARKS[type(frame)]) + payload


def piece_word(size: int) -> bytes:
    """The word before `size` bytes of a body that goes on."""
    return _pack(size, _PIECE_MARK)


def last_word(size: int) -> bytes:
    """The word before the last `size` bytes of a body."""
    return _pack(size, _LAST_MARK)


def text_word(size: int) -> bytes:
    """The word before the last `size` bytes of a text message."""
    return _pack(size, _TEXT_MARK)


class FrameReader:
    """Takes bytes as they come and gives frames; keeps no more than one incomplete struct."""

    __slots__ = ("_body", "_held", "_held_size", "_left", "_unfinished", "_wanted")

    def __init__(self) -> None:
        self._unfinished = False  # something is held, or a body is under way
        self._held: list[bytes] = []  # pieces of an incomplete word or struct
        self._held_size = 0
        self._wanted = 0  # with as many bytes held there is something to decode
        self._left = 0  # bytes that are still to come of a body's frame
        self._body: Callable[[bytes], Frame] = Piece  # what that frame is

    def __repr__(self) -> str:
        return f"<FrameReader held={self._held_size} wanted={self._wanted} body_left={self._left}>"

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes, and the bytes of bodies that it brings.

        Raises:
            ProtocolError: wrong version, unknown kind, too large, or not what the kind's struct says. The reader is
                of no use afterwards.

        """
        end = len(data)
        if self._unfinished:
            frames, data = self._go_on(data)
            end = len(data)
        else:
            if 5 <= end <= MAX_STRUCT:  # nearly always: one frame, whole
                size, mark = _unpack(data)
                if size == end - 5:
                    try:
                        return [_DECODE[mark](data[5:])]
                    except (KeyError, msgspec.MsgspecError) as error:
                        raise _fault(size, mark) from error
            frames = []
        at = 0
        while end - at >= 5:
            size, mark = _unpack(data, at)
            start = at + 5
            stop = start + size
            if stop > end:
                break
            try:
                frames.append(_DECODE[mark](data[start:stop]))
            except (KeyError, msgspec.MsgspecError) as error:
                raise _fault(size, mark) from error
            if size > MAX_STRUCT:
                _check(size, mark)
            at = stop
        if at < end:
            self._wait(data, at, end, frames)
        return frames

    def _go_on(self, data: bytes) -> tuple[list[Frame], bytes]:
        """Go on where the bytes before ended: a frame, if there is one, and what is to be read from its start."""
        size = len(data)
        left = self._left
        if left:
            if size < left:
                self._left = left - size
                return [Piece(data)], b""
            self._left = 0
            self._unfinished = False
            return [self._body(data if size == left else data[:left])], data[left:]
        self._held.append(data)
        self._held_size += size
        if self._held_size < self._wanted:
            return [], b""
        data = b"".join(self._held)
        self._held.clear()
        self._held_size = 0
        self._unfinished = False
        return [], data

    def _wait(self, data: bytes, at: int, end: int, frames: list[Frame]) -> None:
        """What stands at `at` is not complete."""
        self._unfinished = True
        wanted = 5
        if end - at >= 5:
            size, mark = _unpack(data, at)
            _check(size, mark)
            if mark in _BODIES:
                self._left = at + 5 + size - end
                self._body = _BODIES[mark]
                if at + 5 < end:
                    frames.append(Piece(data[at + 5 :]))
                return
            wanted += size
        self._held.append(data[at:])
        self._held_size = end - at
        self._wanted = wanted


def _check(size: int, mark: int) -> None:
    if mark not in _DECODE or (size > MAX_STRUCT and mark not in _BODIES):
        raise _fault(size, mark)


def _fault(size: int, mark: int) -> ProtocolError:
    version, kind = mark >> 4, mark & 15
    if version != VERSION:
        return ProtocolError(f"frame of version {version}; this worker speaks version {VERSION}")
    if mark not in _DECODE:
        return ProtocolError(f"frame of kind {kind} with {size} bytes; there is no such kind in version {VERSION}")
    if size > MAX_STRUCT:
        return ProtocolError(f"frame of kind {kind} with {size} bytes; it may have {MAX_STRUCT}")
    return ProtocolError(f"frame of kind {kind} whose {size} bytes do not decode")
