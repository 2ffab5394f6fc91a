"""Session ids, ids in bodies, and the bounded cache."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from typing import Any

import pytest
from adapters.helpers import steady
from hypothesis import given
from hypothesis import strategies as st

from server_adapters.sessions import BoundedCache, JsonFields, decompress, session_field, session_id

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("value", "session"),
    [
        ("a", "a"),
        ("é" * 1024, "é" * 1024),
        ("é" * 1025, None),
        ("x" * 2048, "x" * 2048),
        ("x" * 2049, None),
        ("", None),
        ("\ud800", None),
        (7, None),
        (None, None),
        (["a"], None),
        (b"a", None),
    ],
)
def test_what_is_a_session_id(value: object, session: str | None) -> None:
    """A non-empty text that a cookie, a digest and a log can take."""
    assert session_id(value) == session


@pytest.mark.parametrize(("value", "session"), [(42, "42"), (True, None), ("42", "42"), (4.2, None), ({}, None)])
def test_a_number_in_a_session_is_an_id(value: object, session: str | None) -> None:
    """Apps keep a user's primary key there."""
    assert session_field({"id": value}, "id") == session


@steady
@given(st.dictionaries(st.sampled_from(["id", "other", "x"]), JSON, max_size=3))
def test_a_field_is_what_json_loads_finds(content: dict[str, Any]) -> None:
    """Also beside NaN and lone surrogates, which json.loads takes."""
    body = json.dumps(content).encode()
    [value] = JsonFields("id").read(body) or (None,)
    assert repr(value) == repr(content.get("id"))


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"id": "a", "id": "b"}', ("b",)),
        (b'{"x": {"id": "a"}}', (None,)),
        (b'{"x": NaN, "id": "a"}', ("a",)),
        (b'{"x": "\\ud800", "id": "a"}', ("a",)),
        (b'\xef\xbb\xbf{"id": "a"}', ("a",)),
        ('{"id": "a"}'.encode("utf-16"), ("a",)),
        (b'{"id": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", None),
        (b'["id"]', None),
        (b'\xef\xbb\xbf["id"]', None),
        (b'"id"', None),
        (b'{"id": "a"', None),
        (b'{"id": "a"} x', None),
        (b'{"x": "\xff", "id"', None),
        (b"", None),
        (b"id=a", None),
    ],
)
def test_bodies_of_every_kind(body: bytes, value: tuple[Any, ...] | None) -> None:
    """The last of a doubled key, only at the top; what is no object has no fields."""
    assert JsonFields("id").read(body) == value


@steady
@given(st.binary(max_size=80))
def test_no_body_is_too_odd(body: bytes) -> None:
    """Whatever was sent, nothing is raised."""
    JsonFields("id", "x").read(body)


@pytest.mark.parametrize(
    ("start", "end", "value"),
    [(b'{"obs": ["', b'"], "id": "a"}', ("a",)), (b'["', b'"]', None)],
)
def test_a_large_body_is_read_without_a_copy(start: bytes, end: bytes, value: Any) -> None:
    """64 MiB of observation beside the id cost no more memory than the id."""
    body = start + b"x" * (64 << 20) + end
    reader = JsonFields("id")
    tracemalloc.start()
    try:
        assert reader.read(body) == value
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        (b"gzip", gzip.compress),
        (b" GZip ", gzip.compress),
        (b"deflate", zlib.compress),
        (b"identity", bytes),
        (None, bytes),
        (b"br", bytes),
        (b"gzip", bytes),
    ],
)
def test_a_compressed_body_is_unpacked(encoding: bytes | None, pack: Any) -> None:
    """An app behind GZipMiddleware; what cannot be unpacked is left as it is."""
    assert decompress(pack(b'{"terminated": true}'), encoding) == b'{"terminated": true}'


def test_the_cache_forgets_what_is_not_asked_for() -> None:
    """Two generations: what is used stays, a flood goes."""
    cache: BoundedCache[int] = BoundedCache(entries=10)
    cache.put(b"kept", 1)
    cache.put(b"left", 2)
    for index in range(100):
        cache.put(b"flood %d" % index, index)
        assert cache.get(b"kept") == 1
    assert cache.get(b"left") is None
    assert len(cache) <= 20


def test_the_cache_is_bounded_in_bytes() -> None:
    """Cookies of the largest size cannot fill the memory, and one that is too large is not kept."""
    cache: BoundedCache[int] = BoundedCache(entries=1000, size=10_000)
    for index in range(1000):
        cache.put(b"%d" % index + b"x" * 90, index)
    assert 100 <= len(cache) <= 220
    cache.put(b"y" * 101, 1)
    assert cache.get(b"y" * 101) is None
