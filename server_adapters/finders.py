"""Looking for an id that a server gives out inside a reply's body, or in the first frames of a WebSocket.

A finder sees every piece before it leaves the worker, in order, and says which id the piece completes: that id is
claimed, then the piece goes on its way. Nothing is held back while it looks, and after a bounded number of bytes or
frames it stops looking.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from server_adapters.json_paths import JsonScanner, Path, reader_of
from server_adapters.sessions import session_id

LONGEST_PREFIX = 64 * 1024
MOST_FRAMES = 16

Make = Callable[[str], str]


class Finder(Protocol):
    """Looks for one id.

    holds_head  the reply's head may wait for the first piece of the body: it is no stream. Then a claim that cannot be
                made is answered in the reply's place, and not by breaking the connection off.
    over        there is nothing to look for any more
    """

    @property
    def holds_head(self) -> bool:
        """See above."""

    @property
    def over(self) -> bool:
        """See above."""

    def feed(self, data: bytes, *, last: bool) -> str | None:
        """The id that this piece or frame completes. `last`: no piece follows."""


class BodyJson:
    """An id in a JSON object: `prefix` is what stands before it, `make` turns the text at `path` into the id."""

    holds_head = True

    def __init__(self, path: Path, *, prefix: bytes = b"", make: Make = str, longest: int = LONGEST_PREFIX) -> None:
        self._path = path
        self._prefix = prefix
        self._make = make
        self._left = longest
        self._scanner: JsonScanner | None = None
        self._before = b""
        self.over = False

    def feed(self, data: bytes, *, last: bool) -> str | None:
        """The id, as soon as it is complete."""
        if self._scanner is None:
            data = self._before + data
            if len(data) < len(self._prefix) and not last:
                self._before = data
                return None
            if not data.startswith(self._prefix):
                self.over = True
                return None
            data = data[len(self._prefix) :]
            if last:  # nearly always: the whole is there, and read at once
                self.over = True
                return self._id(reader_of(self._path).read(data)[0])
            self._scanner = JsonScanner(self._path)
        found = self._scanner.feed(data[: self._left])
        self._left -= len(data)
        self.over = last or self._scanner.over or self._left <= 0
        return self._id(found)

    def _id(self, found: object) -> str | None:
        return session_id(self._make(found)) if isinstance(found, str) and found else None


class EventStream:
    """An id in an event of a stream of server-sent events.

    `read` gets each event's name and data, and says which id is in it.
    """

    holds_head = False

    def __init__(self, read: Callable[[bytes, bytes], str | None], *, longest: int = LONGEST_PREFIX) -> None:
        self._read = read
        self._left = longest
        self._rest = b""
        self._after_return = False
        self._name = b""
        self._data: list[bytes] = []
        self.over = False

    def feed(self, data: bytes, *, last: bool) -> str | None:
        """The id of the first event that has one, with the piece that completes the event."""
        text = data[: self._left]
        self._left -= len(data)
        if self._after_return and text[:1] == b"\n":
            text = text[1:]  # the second half of a line's end
        self._after_return = text.endswith(b"\r")
        *lines, self._rest = _LINE_END.split(self._rest + text)
        self.over = last or self._left <= 0
        for line in lines:
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"event":
                self._name = value
            elif field == b"data":
                self._data.append(value)
            elif not line:
                found = self._read(self._name or b"message", b"\n".join(self._data)) if self._data else None
                self._name = b""
                self._data.clear()
                if found is not None and session_id(found) is not None:
                    self.over = True
                    return found
        return None


_LINE_END = re.compile(rb"\r\n|\n|\r")


class FrameJson:
    """An id in a text frame with a JSON object: `prefix` is what stands before it."""

    holds_head = False

    def __init__(self, path: Path, *, prefix: bytes = b"", most: int = MOST_FRAMES) -> None:
        self._paths = reader_of(path)
        self._prefix = prefix
        self._left = most
        self.over = False

    def feed(self, data: bytes, *, last: bool) -> str | None:
        """The id in this frame."""
        self._left -= 1
        self.over = last or self._left <= 0
        if not data.startswith(self._prefix):
            return None
        found = session_id(self._paths.read(data[len(self._prefix) :])[0])
        self.over = self.over or found is not None
        return found


class FrameProtobuf:
    """An id in a text field of a protobuf message: the numbers of the fields that lead to it."""

    holds_head = False

    def __init__(self, fields: tuple[int, ...], *, most: int = MOST_FRAMES) -> None:
        self._fields = fields
        self._left = most
        self.over = False

    def feed(self, data: bytes, *, last: bool) -> str | None:
        """The id in this frame."""
        self._left -= 1
        self.over = last or self._left <= 0
        message: bytes | None = data
        for number in self._fields:
            message = None if message is None else _field(message, number)
        found = None if message is None else session_id(message.decode("utf-8", "replace"))
        self.over = self.over or found is not None
        return found


def _field(message: bytes, wanted: int) -> bytes | None:
    """The last field of a number that has a length; None where there is none, or the message is not well-formed."""
    found, at = None, 0
    try:
        while at < len(message):
            tag, at = _number(message, at)
            kind = tag & 7
            if kind == 0:
                _, at = _number(message, at)
            elif kind in (1, 5):
                at += 8 if kind == 1 else 4
            elif kind == 2:
                size, at = _number(message, at)
                if tag >> 3 == wanted:
                    found = message[at : at + size]
                at += size
            else:
                return None
    except IndexError:
        return None
    return found if at == len(message) else None


def _number(message: bytes, at: int) -> tuple[int, int]:
    """The number that begins there, and where it ends."""
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128 or shift > 63:
            return value, at


class FramePattern:
    """An id in a frame of any kind: the group `session` of a pattern that is searched for."""

    holds_head = False

    def __init__(self, pattern: re.Pattern[bytes], *, most: int = MOST_FRAMES, longest: int = LONGEST_PREFIX) -> None:
        self._pattern = pattern
        self._left = most
        self._longest = longest
        self.over = False

    def feed(self, data: bytes, *, last: bool) -> str | None:
        """The id in this frame."""
        self._left -= 1
        self.over = last or self._left <= 0
        match = self._pattern.search(data, 0, self._longest)
        found = None if match is None else session_id(match["session"].decode("latin-1"))
        self.over = self.over or found is not None
        return found
