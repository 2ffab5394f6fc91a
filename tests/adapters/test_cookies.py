"""Cookies in raw header lists."""

from __future__ import annotations

import time

import pytest
from adapters.helpers import steady
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection, cookie_parser

from server_adapters import cookies
from server_adapters.heads import Header

ODD = st.text(st.sampled_from('ab=;" \\,0123\t\x85\xa0é\x1c'), max_size=40)
RAW = st.one_of(ODD.map(lambda text: text.encode("latin-1")), st.binary(max_size=60))


@steady
@given(RAW)
def test_a_cookie_header_is_read_as_starlette_reads_it(raw: bytes) -> None:
    """Whatever a client writes, router and app see the same cookies."""
    assert cookies.parse(raw) == cookie_parser(raw.decode("latin-1"))


@steady
@given(st.lists(RAW, max_size=4))
def test_several_cookie_headers_are_read_as_one(values: list[bytes]) -> None:
    """A client may split its cookies over headers, as HTTP/2 has it; the last of a name still wins."""
    headers = [(b"cookie", value) for value in values]
    raw = cookies.joined([(b"accept", b"*/*"), *headers])
    seen = {} if raw is None else cookies.parse(raw)
    assert seen == HTTPConnection({"type": "http", "headers": headers}).cookies


@pytest.mark.parametrize(
    ("raw", "name", "value"),
    [
        (b"a=1; b=2", "b", "2"),
        (b'a="quoted \\"x\\""', "a", '"quoted \\"x\\""'),
        (b"a=1; a=2", "a", "2"),
        (b"a = 1 ", "a", "1"),
        (b"b=1", "a", None),
        (b"; ;", "", None),
    ],
)
def test_a_cookie_is_found_as_it_was_sent(raw: bytes, name: str, value: str | None) -> None:
    """The value that is repeated to a client has its quotes."""
    assert cookies.value_as_sent(raw, name) == value


A: Header = (b"accept", b"*/*")
Z: Header = (b"x-z", b"1")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([A], [A, (b"cookie", b"s=new")]),
        ([A, (b"cookie", b"x=1"), Z], [A, (b"cookie", b"x=1; s=new"), Z]),
        ([(b"cookie", b"s=old; x=1; s=older")], [(b"cookie", b"x=1; s=new")]),
        ([(b"cookie", b"s=old"), Z, (b"cookie", b"y=2")], [Z, (b"cookie", b"y=2; s=new")]),
        ([(b"cookie", b"y=2"), Z, (b"cookie", b"s=old")], [(b"cookie", b"y=2"), Z, (b"cookie", b"s=new")]),
        ([(b"cookie", b'x="a b"; \xe9=\xff')], [(b"cookie", b'x="a b"; \xe9=\xff; s=new')]),
        ([(b"cookie", b" ; ")], [(b"cookie", b"s=new")]),
    ],
)
def test_a_cookie_is_put_in_the_place_of_its_namesakes(before: list[Header], after: list[Header]) -> None:
    """Other cookies and the order of the headers stay."""
    assert cookies.put(before, "s", "new") == after


@steady
@given(st.lists(RAW, max_size=3))
def test_a_cookie_that_was_put_in_is_the_one_that_is_read(values: list[bytes]) -> None:
    """Beside any other cookies; and none of those is lost."""
    headers = [(b"cookie", value) for value in values]
    seen = HTTPConnection({"type": "http", "headers": cookies.put(headers, "s", "new")}).cookies
    before = HTTPConnection({"type": "http", "headers": headers}).cookies
    assert seen == {**before, "s": "new"}


def test_only_the_named_set_cookie_goes_and_order_stays() -> None:
    """The raw list is kept: an app may set many cookies, and one name may be the start of another."""
    headers = [
        A,
        (b"set-cookie", b"s=1"),
        (b"set-cookie", b"s2=1"),
        Z,
        (b"set-cookie", b"s=2"),
        (b"set-cookie", b"t=1"),
    ]
    assert cookies.without(headers, b"s=") == [A, (b"set-cookie", b"s2=1"), Z, (b"set-cookie", b"t=1")]
    assert cookies.set_by(headers, b"s=") == b"s=2"
    assert cookies.set_by(headers, b"u=") is None


@pytest.mark.parametrize(
    ("attributes", "passed"),
    [
        (b" path=/; Max-Age=1209600; httponly", False),
        (b" path=/", False),
        (b"Max-Age=0", True),
        (b"max-age=-5", True),
        (b"max-age=00", True),
        (b"Max-Age=soon", False),
        (b"expires=Thu, 01 Jan 1970 00:00:00 GMT", True),
        (b"Expires=Thu, 01-Jan-1970 00:00:00 GMT", True),
        (b"expires=Thu, 01 Jan 1970 00:00:00", True),
        (b"expires=Fri, 31 Dec 2100 23:59:59 GMT", False),
        (b"expires=yesterday", False),
        (b"expires=Thu, 99 Jan 1970 00:00:00 GMT", False),
        (b"Max-Age=60; expires=Thu, 01 Jan 1970 00:00:00 GMT", False),
        (b"Max-Age=0; expires=Fri, 31 Dec 2100 23:59:59 GMT", True),
    ],
)
def test_an_expired_cookie_is_recognised(attributes: bytes, passed: bool) -> None:
    """As browsers do: Max-Age goes before Expires, and what cannot be read is not there."""
    assert cookies.Expiry().passed(attributes, 1_800_000_000.0) is passed


def test_a_date_without_a_zone_is_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the machine stands."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Pacific/Kiritimati")
        time.tzset()
        assert cookies.expires_at(b"expires=Sun, 09 Sep 2001 01:46:40") == 1_000_000_000.0
    time.tzset()


def test_a_cookie_expires_while_its_attributes_are_cached() -> None:
    """What is cached is the time, not the answer."""
    expiry = cookies.Expiry()
    attributes = b"expires=Sun, 09 Sep 2001 01:46:40 GMT"
    assert not expiry.passed(attributes, 999_999_999.0)
    assert expiry.passed(attributes, 1_000_000_000.0)


@steady
@given(RAW, st.floats(0, 4e9))
def test_any_attributes_can_be_read(attributes: bytes, now: float) -> None:
    """An app's odd cookie never stops its reply."""
    cookies.Expiry().passed(attributes, now)
