"""Ids inside replies: found with the piece that completes them, in whatever pieces they come."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from server_adapters.finders import BodyJson, EventStream, Finder, FrameJson, FramePattern


def feed(finder: Finder, *pieces: bytes) -> list[str | None]:
    """What each piece completes, for as long as the finder looks."""
    found: list[str | None] = []
    for number, piece in enumerate(pieces, 1):
        if finder.over:
            break
        found.append(finder.feed(piece, last=number == len(pieces)))
    return found


def engine_io() -> Finder:
    """The id in Engine.IO's handshake."""
    return BodyJson(("sid",), prefix=b"0")


def endpoint() -> Finder:
    """The id in the event of that name."""
    return EventStream(lambda name, data: data.partition(b"=")[2].decode() if name == b"endpoint" else None)


CASES: list[tuple[Callable[[], Finder], list[bytes], list[str | None]]] = [
    (engine_io, [b'0{"sid":"abc","upgrades":[]}'], ["abc"]),
    (engine_io, [b"", b"0", b'{"sid":', b'"abc"', b",1}"], [None, None, None, "abc"]),
    (engine_io, [b'4{"sid":"abc"}', b'0{"sid":"abc"}'], [None]),
    (engine_io, [b'0{"sid":""}'], [None]),
    (engine_io, [b""], [None]),
    (lambda: BodyJson(("sid",), longest=20), [b'{"a":"' + b"x" * 20, b'","sid":"late"}'], [None]),
    (lambda: BodyJson(("sid",), longest=20), [b'{"a":"' + b"x" * 20 + b'","sid":"whole"}'], ["whole"]),
    (lambda: BodyJson(("sid",), make=lambda text: text[:3]), [b'{"sid":"' + b"abc" * 1000 + b'"}'], ["abc"]),
    (lambda: BodyJson(("sid",)), [b'{"sid":"' + b"abc" * 1000 + b'"}'], [None]),
    (lambda: BodyJson(("sid",)), [b'{"sid":7}'], [None]),
    (lambda: BodyJson(("sid",)), [b'{"sid":"\\ud800"}'], [None]),
    (lambda: BodyJson(("sid",), make=lambda text: text.upper()), [b'{"sid":"abc"}'], ["ABC"]),
    (endpoint, [b"event: endpoint\r\ndata: /m?s=abc\r\n\r\n"], ["abc"]),
    (endpoint, [b"event:endpoint\ndata:/m?s=abc\n\n"], ["abc"]),
    (endpoint, [b"event: endpoint\r", b"\ndata: /m?s=", b"abc\r", b"\n\r", b"\n"], [None, None, None, "abc"]),
    (endpoint, [b"data: x=no\n\n", b": ping\n\n", b"event: endpoint\ndata: x=yes\n\n"], [None, None, "yes"]),
    (endpoint, [b"event: endpoint\n\n", b"data: x=no\n\n"], [None, None]),
    (lambda: EventStream(lambda _, data: data.decode(), longest=8), [b": 34567\n", b"data: late\n\n"], [None]),
    (lambda: FrameJson(("config", "sessionId")), [b'{"a":1}', b'{"config":{"sessionId":"s"}}'], [None, "s"]),
    (lambda: FrameJson(("sid",), prefix=b"0"), [b'0{"sid":"s"}', b'0{"sid":"t"}'], ["s"]),
    (lambda: FrameJson(("sid",), most=2), [b"{}", b"\xff", b'{"sid":"late"}'], [None, None]),
    (lambda: FramePattern(re.compile(rb"\x0a\x03(?P<session>...)")), [b"zz", b"\x00\x0a\x03abc"], [None, "abc"]),
    (lambda: FramePattern(re.compile(rb"(?P<session>a)"), longest=2), [b"xxa"], [None]),
]


@pytest.mark.parametrize(("make", "pieces", "expected"), CASES)
def test_a_finder(make: Callable[[], Finder], pieces: list[bytes], expected: list[str | None]) -> None:
    """Each piece is seen once, in order; after the id, the end or the bound nothing is looked at any more."""
    assert feed(make(), *pieces) == expected


@pytest.mark.parametrize("finder", [engine_io(), endpoint(), FrameJson(("a",)), FramePattern(re.compile(b"x"))])
def test_who_may_hold_the_head(finder: Finder) -> None:
    """Only what is no stream."""
    assert finder.holds_head is isinstance(finder, BodyJson)
