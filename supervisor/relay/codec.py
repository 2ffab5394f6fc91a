"""The relay's frames as bytes: writing them, and reading them as they come in whatever sizes the socket delivers."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import msgspec

from supervisor.relay.frames import (
    MAX_STRUCT,
    VERSION,
    Ack,
    Frame,
    Head,
    Last,
    Message,
    Open,
    Piece,
    ProtocolError,
    Signal,
    Text,
)

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
