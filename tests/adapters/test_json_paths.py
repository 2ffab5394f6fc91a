"""Values in JSON by path: whole texts and pieces agree with the standard library."""

from __future__ import annotations

import json
from typing import Any

import pytest
from adapters.helpers import steady
from hypothesis import given
from hypothesis import strategies as st

from server_adapters.json_paths import JsonPaths, JsonScanner, path_of

WHOLE: list[tuple[bytes, str, Any]] = [
    (b'{"a": "x"}', "a", "x"),
    (b'{"a": {"b": {"c": "x"}}, "d": 1}', "a.b.c", "x"),
    (b'{"a": {"b": 7}}', "a.b", 7),
    (b'{"a": [{"b": "x"}]}', "a.b", None),
    (b'{"a": "b"}', "a.b", None),
    (b'{"a": null}', "a.b", None),
    (b'{"b": {"a": "x"}}', "a", None),
    (b'{"a": {"b": "x"}, "z": NaN}', "a.b", "x"),
    (b'{"a": {"b": "\\ud800"}}', "a.b", "\ud800"),
    (b"[1]", "a", None),
    (b'"a"', "a", None),
    (b"{", "a", None),
    (b"", "a", None),
    (b"[" * 100_000, "a", None),
]


@pytest.mark.parametrize(("body", "path", "expected"), WHOLE)
def test_a_whole_text(body: bytes, path: str, expected: Any) -> None:
    """What is at the path, and None for everything else."""
    assert JsonPaths(path_of(path)).read(body) == (expected,)


def test_several_paths() -> None:
    """One reading has them all, in the order that was asked for."""
    paths = JsonPaths(("id",), ("params", "name"), ("params", "arguments", "session_id"), ("params", "nothing"))
    body = {"id": 3, "params": {"arguments": {"session_id": "s", "x": [1]}, "name": "t"}}
    assert paths.read(json.dumps(body).encode()) == (3, "t", "s", None)


PIECES: list[tuple[str, str, str | None]] = [
    ('{"sid": "abc", "upgrades": ["websocket"]}', "sid", "abc"),
    ('{"upgrades": ["sid", "x"], "sid":"abc"}', "sid", "abc"),
    ('{"a": {"sid": "no"}, "b": [{"sid": "no"}], "sid": "yes"}', "sid", "yes"),
    ('{"text": "\\"sid\\": \\"no\\"", "sid": "yes"}', "sid", "yes"),
    ('{"result": {"content": [{"requestState": "no"}], "requestState": "yes"}}', "result.requestState", "yes"),
    ('{"requestState": "no", "result": {"a": {"requestState": "no"}}}', "result.requestState", None),
    ('{"result": "requestState", "x": {"requestState": "no"}}', "result.requestState", None),
    ('{"result": ["requestState", "no"]}', "result.requestState", None),
    ('{"sid": 7, "x": "no"}', "sid", None),
    ('{"sid": ["no"]}', "sid", None),
    ('["sid", "no"]', "sid", None),
    ('"sid"', "sid", None),
    ('{"s\\u0069d": "\\u00e9"}', "sid", "\u00e9"),
    ('{"a": "x"} {"sid": "no"}', "sid", None),
    ("not json at all: {}", "sid", None),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
@pytest.mark.parametrize(("text", "path", "expected"), PIECES)
def test_pieces(text: str, path: str, expected: str | None, size: int) -> None:
    """However it is cut, the value comes with the piece that has its closing quote, and once."""
    scanner, body, found = JsonScanner(path_of(path)), text.encode(), []
    for start in range(0, len(body), size):
        value = scanner.feed(body[start : start + size])
        if value is not None:
            found.append(value)
            assert expected is not None
            quoted = json.dumps(expected).encode() if expected.isascii() else b'\\u00e9"'
            assert body.index(quoted) + len(quoted) <= start + size
        if scanner.over:
            break
    assert found == ([] if expected is None else [expected])


NAMES = st.sampled_from(["a", "b", "c", "a.b", 'q"q', "\u00e9"])
PATHS = st.lists(NAMES.filter(str.isidentifier), min_size=1, max_size=3).map(tuple)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


@steady
@given(
    content=VALUES,
    path=st.lists(NAMES.filter(str.isidentifier), min_size=1, max_size=3).map(tuple),
    cuts=st.data(),
    indent=st.booleans(),
)
def test_pieces_are_read_as_the_whole_is(content: Any, path: tuple[str, ...], cuts: Any, indent: bool) -> None:
    """Both ways agree with json.loads, where the value is a text."""
    body = json.dumps(content, ensure_ascii=False, indent=2 if indent else None).encode()
    expected = content
    for name in path:
        expected = expected.get(name) if isinstance(expected, dict) else None
    assert JsonPaths(path).read(body) == (expected,)
    scanner, found, rest = JsonScanner(path), None, body
    while rest and found is None:
        size = cuts.draw(st.integers(1, len(rest)))
        found, rest = scanner.feed(rest[:size]), rest[size:]
    assert found == (expected if isinstance(expected, str) else None)
