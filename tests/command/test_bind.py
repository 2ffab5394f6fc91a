"""Where a server listens: every form, and what is refused."""

from __future__ import annotations

import ipaddress
import os
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.config.bind import Bind, FormError

PORTS = st.integers(0, 65535)
LABEL = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=20)

RIGHT = [
    ("127.0.0.1:8000", Bind(kind="tcp", host="127.0.0.1", port=8000)),
    ("[::1]:8000", Bind(kind="tcp", host="::1", port=8000)),
    ("[fe80::1%eth0]:1", Bind(kind="tcp", host="fe80::1%eth0", port=1)),
    ("localhost:80", Bind(kind="tcp", host="localhost", port=80)),
    (":8000", Bind(kind="tcp", host="0.0.0.0", port=8000)),
    ("127.0.0.1:0", Bind(kind="tcp", host="127.0.0.1", port=0)),
    ("unix:/run/x.sock", Bind(kind="unix", path="/run/x.sock")),
    ("unix:x.sock", Bind(kind="unix", path="/folder/x.sock")),
    ("fd://3", Bind(kind="fd", fd=3)),
    ("systemd:web.socket", Bind(kind="systemd", name="web.socket")),
]

WRONG = [
    "", "localhost", "8000", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:-1", "127.0.0.1:65536", "::1:80",
    "[127.0.0.1]:80", "[]:80", "[::1]", "[::1]80", "a b:80", "http://x:80", "a..b:80", "-a:80", "unix:", "unix:a/",
    "unix:a\0b", "fd://", "fd://2", "fd://x", "fd:3", "systemd:", "systemd:a b", "systemd:a:b", "127.0.0.1:٣",
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), RIGHT)
def test_each_form_is_understood(text: str, expected: Bind) -> None:
    """Each documented form has its parts."""
    assert Bind.parse(text, folder="/folder") == expected


@pytest.mark.parametrize("text", WRONG)
def test_anything_else_is_refused(text: str) -> None:
    """What is none of the forms says what was expected."""
    with pytest.raises(FormError) as error:
        Bind.parse(text)
    assert error.value.expected


@given(st.lists(LABEL, min_size=1, max_size=4).map(".".join), PORTS)
def test_any_host_and_port_comes_back_as_written(host: str, port: int) -> None:
    """Names and IPv4 addresses survive parsing and printing."""
    bind = Bind.parse(f"{host}:{port}")
    assert (bind.host, bind.port) == (host, port)
    assert str(bind) == f"{host}:{port}"


@given(st.ip_addresses(v=6), PORTS)
def test_any_ipv6_address_comes_back_in_brackets(address: ipaddress.IPv6Address, port: int) -> None:
    """IPv6 addresses survive parsing and printing."""
    text = f"[{address}]:{port}"
    assert str(Bind.parse(text)) == text
    assert Bind.parse(text).host == str(address)


@given(st.text(max_size=40))
def test_any_text_is_a_bind_or_a_form_error(text: str) -> None:
    """No text raises anything else, and what is accepted prints to something that means the same."""
    try:
        bind = Bind.parse(text, folder="/")
    except FormError:
        return
    assert Bind.parse(str(bind), folder="/") == bind


@given(st.integers(100, 115), st.integers(0, 40))
def test_a_socket_path_has_at_most_107_bytes(size: int, wide: int) -> None:
    """The limit counts bytes, not characters."""
    path = "/" + "é" * wide + "a" * (size - 1 - 2 * wide)
    assert len(os.fsencode(path)) == size
    if size <= 107:
        assert Bind.parse(f"unix:{path}").path == path
    else:
        with pytest.raises(FormError, match="at most 107 bytes") as error:
            Bind.parse(f"unix:{path}")
        assert f"({size} bytes)" in error.value.found


CLASHES = [
    ("127.0.0.1:80", "127.0.0.1:80", True),
    ("127.0.0.1:80", "127.0.0.1:81", False),
    ("127.0.0.1:80", ":80", True),
    ("127.0.0.1:80", "[::]:80", False),
    ("[::1]:80", "[::]:80", True),
    ("127.0.0.1:80", "127.0.0.2:80", False),
    ("127.0.0.1:0", "127.0.0.1:0", False),
    ("unix:/a", "unix:/a", True),
    ("unix:/a", "unix:/b", False),
    ("fd://3", "fd://3", True),
    ("fd://3", "fd://4", False),
    ("systemd:a", "systemd:a", True),
    ("systemd:a", "unix:/a", False),
]


@pytest.mark.parametrize(("one", "two", "clash"), CLASHES)
def test_addresses_clash_when_they_cannot_be_had_at_once(one: str, two: str, clash: bool) -> None:
    """Wildcards cover the addresses of their family; port 0 is never taken."""
    assert Bind.parse(one).clashes_with(Bind.parse(two)) is clash
    assert Bind.parse(two).clashes_with(Bind.parse(one)) is clash
