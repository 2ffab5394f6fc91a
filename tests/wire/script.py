"""What a case of the wire is made of: bytes and waits of one client on one connection.

`request` and `upgrade` write requests; `frame` writes a WebSocket frame as a client does. Its mask, and the handshake's
key, are always the same, so that a server's answers are too.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

SESSION = "x-session: wire"
CASE = "x-case: @CASE@"


@dataclass(frozen=True)
class Send:
    """Bytes to the server; `@CASE@` is the case's name. `at_once`: without waiting until all of it is taken."""

    data: bytes
    at_once: bool = False


@dataclass(frozen=True)
class Until:
    """Read until these bytes have come, after what was read before."""

    marker: bytes


@dataclass(frozen=True)
class Eof:
    """Read until the server closes."""


@dataclass(frozen=True)
class HalfClose:
    """Say that nothing more is sent; what comes is still read."""


@dataclass(frozen=True)
class Leave:
    """Close the connection; `reset` it if asked to."""

    reset: bool = False


@dataclass(frozen=True)
class Gate:
    """Let the app go on."""


@dataclass(frozen=True)
class Noted:
    """Wait until the app has noted so many things."""

    count: int = 1


@dataclass(frozen=True)
class Stalled:
    """Wait until the app gets no further; it is not over."""

    below: int


@dataclass(frozen=True)
class Stream:
    """HTTP/2: a request on a stream of its own; with a body that ends it, unless `ends` is False."""

    name: str
    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    ends: bool = True


@dataclass(frozen=True)
class Data:
    """HTTP/2: more of a stream's body."""

    name: str
    body: bytes
    ends: bool = False


@dataclass(frozen=True)
class Ended:
    """HTTP/2: wait until the server has ended a stream, or reset it."""

    name: str


@dataclass(frozen=True)
class Reset:
    """HTTP/2: the client has no more use for a stream."""

    name: str


Step = Send | Until | Eof | HalfClose | Leave | Gate | Noted | Stalled | Stream | Data | Ended | Reset


@dataclass(frozen=True)
class Case:
    """A client's script.

    joined   where the chunks of a body are cut is not said anywhere: they are compared joined
    differs  why the two ways may not be equal, on a stack of protocols or on all ("")
    only     the stacks that it is for; empty: all
    http2    its connection is one of HTTP/2
    """

    group: str
    name: str
    steps: list[Step]
    joined: bool = False
    differs: dict[str, str] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    http2: bool = False

    @property
    def slug(self) -> str:
        """Its name in a header."""
        return f"{self.group},-{self.name}".replace(" ", "-")

    @property
    def websocket(self) -> bool:
        """Whether it asks for a WebSocket."""
        return any(isinstance(step, Send) and b"Upgrade: websocket" in step.data for step in self.steps)

    def is_for(self, stack: str) -> bool:
        """Whether it is one of a stack's."""
        return not self.only or stack in self.only

    def why(self, stack: str) -> str | None:
        """Why the two ways may differ on a stack; None: they must not."""
        return self.differs.get(stack, self.differs.get(""))


def request(line: str, *headers: str, body: bytes = b"", last: bool = True) -> bytes:
    """A request; `last` says that the connection ends with its reply."""
    target = line if "HTTP/" in line else f"{line} HTTP/1.1"
    lines = [target, "Host: h", SESSION, CASE, *headers, *(["Connection: close"] if last else [])]
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body


def simple(line: str, *headers: str, body: bytes = b"") -> list[Step]:
    """One request, and its reply to the end."""
    return [Send(request(line, *headers, body=body)), Eof()]


def upgrade(path: str, *headers: str) -> bytes:
    """A WebSocket's handshake."""
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: h",
        SESSION,
        CASE,
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        *headers,
    ]
    return "\r\n".join((*lines, "", "")).encode("latin-1")


CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MASK = b"\x11\x22\x33\x44"


def frame(opcode: int, data: bytes, *, fin: bool = True) -> bytes:
    """One frame of a client's."""
    size = len(data)
    if size < 126:
        head = struct.pack("!BB", fin << 7 | opcode, 0x80 | size)
    elif size < 65536:
        head = struct.pack("!BBH", fin << 7 | opcode, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", fin << 7 | opcode, 0x80 | 127, size)
    key = int.from_bytes((MASK * (size // 4 + 1))[:size], "big")
    return head + MASK + (int.from_bytes(data, "big") ^ key).to_bytes(size, "big")


def closing(code: int, reason: str = "") -> bytes:
    """A close frame."""
    return frame(CLOSE, struct.pack("!H", code) + reason.encode())
