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
from collections.abc import Mapping
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
