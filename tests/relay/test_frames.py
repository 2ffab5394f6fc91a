"""Frames, fed whole, byte by byte, in odd pieces and with trailing data; and what no frame may be."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.relay.codec import FAILED, READS, TAKEN, FrameReader, encode, last_word, piece_word
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
    Scope,
    Signal,
)

SCOPE = Scope(
    "http",
    "1.1",
    "POST",
    "http",
    "/café/x",
    b"/caf%C3%A9/x",
    b"a=1&a=2",
    "/root",
    ("10.0.0.1", 5000),
    ("/run/x.sock", None),
    {"version": "3.0", "spec_version": "2.3"},
)
OPEN = Open(7, "owned", "abc", 5, SCOPE, [(b"cookie", b"a=1"), (b"cookie", b"b=\xff")], b"body")
CASES: list[tuple[str, bytes, Frame]] = [
    ("open", encode(OPEN), OPEN),
    ("ok", encode(Ack.OK), Ack.OK),
    ("not owner", encode(Ack.not_owner(9)), Ack.not_owner(9)),
    ("refused", encode(Ack.refused("table_full", {"worker": 2})), Ack.refused("table_full", {"worker": 2})),
    (
        "head",
        encode(Head(200, [(b"set-cookie", b"a"), (b"set-cookie", b"b")])),
        Head(200, [(b"set-cookie", b"a"), (b"set-cookie", b"b")]),
    ),
    ("reply", encode(Head(204, [], b"")), Head(204, [], b"")),
    (
        "message",
        encode(Message({"type": "x", "headers": [[b"a", b"b"]]})),
        Message({"type": "x", "headers": [[b"a", b"b"]]}),
    ),
    ("piece", piece_word(5) + b"hello", Piece(b"hello")),
    ("last", last_word(5) + b"world", Last(b"world")),
    ("empty last", last_word(0), Last(b"")),
    ("taken", TAKEN, Signal.TAKEN),
    ("failed", FAILED, Signal.FAILED),
    ("reads", READS, Signal.READS),
]
by_name = pytest.mark.parametrize(("wire", "frame"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])


def normal(found: list[Frame]) -> list[Any]:
    """Bodies as the bytes between two other frames, whatever pieces they came in."""
    out: list[Any] = []
    for frame in found:
        if type(frame) in (Piece, Last):
            if not (out and type(out[-1]) is list and out[-1][1]):
                out.append([b"", True])
            out[-1] = [out[-1][0] + frame.data, type(frame) is Piece]  # type: ignore[union-attr]
        else:
            out.append(frame)
    return [item for item in out if item != [b"", True]]


def feed(data: bytes, *cuts: int) -> list[Any]:
    """What a reader makes of `data` cut at `cuts`."""
    reader = FrameReader()
    found: list[Frame] = []
    for start, stop in zip((0, *cuts), (*cuts, len(data)), strict=True):
        found += reader.feed(data[start:stop])
    return normal(found)


@by_name
def test_whole(wire: bytes, frame: Frame) -> None:
    """A frame that comes whole is one frame."""
    assert FrameReader().feed(wire) == [frame]


@by_name
def test_byte_by_byte(wire: bytes, frame: Frame) -> None:
    """A frame that comes byte by byte is the same frame, and comes with its last byte."""
    reader = FrameReader()
    found: list[Frame] = []
    for index in range(len(wire) - 1):
        found += reader.feed(wire[index : index + 1])
    assert all(type(early) is Piece for early in found)
    found += reader.feed(wire[-1:])
    assert normal(found) == normal([frame])


@by_name
def test_trailing_data(wire: bytes, frame: Frame) -> None:
    """What follows a frame, a whole one and the beginning of another, is not lost."""
    reader = FrameReader()
    end = encode(Head(299, []))
    assert normal(reader.feed(wire + end + wire[:3])) == normal([frame, Head(299, [])])
    assert normal(reader.feed(wire[3:] + end)) == normal([frame, Head(299, [])])


@given(st.lists(st.sampled_from([case[1] for case in CASES]), max_size=8), st.data())
def test_any_cut(wires: list[bytes], data: st.DataObject) -> None:
    """However a stream is cut, the frames are those of the stream in one piece."""
    stream = b"".join(wires)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    assert feed(stream, *cuts) == feed(stream)


def test_body_is_passed_on_as_it_comes() -> None:
    """The bytes of a large body are neither held nor joined: what comes out is what was put in."""
    reader = FrameReader()
    assert reader.feed(last_word(1 << 20)) == []
    for index in range(1023):
        piece = bytes([index % 256]) * 1024
        (out,) = reader.feed(piece)
        assert type(out) is Piece
        assert out.data is piece
    assert reader.feed(b"x" * 1024) == [Last(b"x" * 1024)]


def test_struct_is_joined_once() -> None:
    """An incomplete struct is held in the pieces in which it came: joining at each would take time squared."""
    reader = FrameReader()
    wire = encode(Head(200, [(b"x", b"y" * 60000)]))
    for start in range(0, len(wire) - 100, 100):
        assert reader.feed(wire[start : start + 100]) == []
    assert max(map(len, reader._held)) <= 100 + 5
    rest = start + 100
    (head,) = reader.feed(wire[rest:])
    assert type(head) is Head
    assert len(head.headers[0][1]) == 60000


def word(size: int, version: int, kind: int) -> bytes:
    return struct.pack("<IB", size, version << 4 | kind)


HUGE = msgspec.msgpack.encode(Head(200, [(b"x", b"y" * MAX_STRUCT)]))
FAULTS = {
    "version": (word(0, 2, 3), "version 2"),
    "kind": (word(0, VERSION, 14), "kind 14"),
    "signal with payload": (word(1, VERSION, Signal.TAKEN.value) + b"x", "kind 3 whose 1 bytes"),
    "too large": (word(len(HUGE), VERSION, 6) + HUGE, f"{len(HUGE)} bytes; it may have"),
    "not MessagePack": (word(4, VERSION, 1) + b"\xc1abc", "kind 1 whose 4 bytes"),
    "wrong type": (word(4, VERSION, 6) + b"\x92\xa1x\x90", "kind 6 whose 4 bytes"),
}


@pytest.mark.parametrize(("wire", "says"), FAULTS.values(), ids=FAULTS)
def test_faults(wire: bytes, says: str) -> None:
    """What is no frame is refused with what was found, whole or in pieces; a large one before it has come."""
    with pytest.raises(ProtocolError, match=says):
        FrameReader().feed(wire)
    with pytest.raises(ProtocolError, match=says):
        feed(wire, 2, 5)
    with pytest.raises(ProtocolError, match=says):
        FrameReader().feed(TAKEN + wire)
    if "it may have" in says:
        with pytest.raises(ProtocolError, match=says):
            FrameReader().feed(wire[:5])


def test_encode_too_large() -> None:
    """A head that no reader would take is not written."""
    with pytest.raises(ProtocolError, match="Head of .* bytes; it may have"):
        encode(Head(200, [(b"x", b"y" * MAX_STRUCT)]))
