"""Public sockets of every kind of bind, in this process."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor import listeners
from supervisor.config import Bind
from supervisor.errors import BindError
from supervisor.listeners import Listeners, backlog, open_listeners


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A taken address is known at once here; the wait is a test of its own."""
    monkeypatch.setattr(listeners, "PROBE_SECONDS", 0.0)


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose sockets have short paths."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def opened(text: str, **options: object) -> Listeners:
    """The listeners of a bind as it stands in a config."""
    return open_listeners(Bind.parse(text), **options)  # type: ignore[arg-type]


def accepts(one: socket.socket) -> bool:
    """Whether a client gets through."""
    with socket.socket(one.family, socket.SOCK_STREAM) as client:
        client.connect(one.getsockname())
        one.accept()[0].close()
        return True


def has_ipv6() -> bool:
    """Whether this machine has ::1."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")


def test_tcp() -> None:
    """Non-blocking, with the protocol named, with the kernel's whole backlog, and closed in one go."""
    found = opened("127.0.0.1:0")
    (one,) = found.sockets
    assert found.address == f"127.0.0.1:{one.getsockname()[1]}"
    assert one.proto == socket.IPPROTO_TCP
    assert one.getblocking() is False
    assert not os.get_inheritable(one.fileno())
    assert not one.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)
    assert accepts(one)
    found.close()
    assert one.fileno() == -1
    assert found.sockets == []


def test_the_backlog_is_the_kernels_limit() -> None:
    """What listen(2) would grant at most."""
    assert backlog() == int(Path("/proc/sys/net/core/somaxconn").read_text())


@needs_ipv6
def test_ipv6() -> None:
    """In brackets, as in a URL."""
    found = opened("[::1]:0")
    assert found.sockets[0].family == socket.AF_INET6
    assert found.address == f"[::1]:{found.sockets[0].getsockname()[1]}"
    assert accepts(found.sockets[0])
    found.close()


def test_a_name_is_served_on_every_address_that_it_has() -> None:
    """All on one port; those that this machine does not have are left out."""
    found = opened("localhost:0")
    addresses = {info[4][0] for info in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)}
    if not has_ipv6():
        addresses.discard("::1")
    assert {one.getsockname()[0] for one in found.sockets} == addresses
    assert len({one.getsockname()[1] for one in found.sockets}) == 1
    assert all(accepts(one) for one in found.sockets)
    found.close()


def test_a_taken_port() -> None:
    """It is named, with what to do."""
    found = opened("127.0.0.1:0")
    with pytest.raises(
        BindError, match=rf"bind {found.address}: found an address that is taken, .*; stop what listens"
    ):
        opened(found.address)
    found.close()


def test_a_port_that_closed_connections_still_remember() -> None:
    """A restart need not wait for the TIME_WAIT of what the predecessor closed."""
    found = opened("127.0.0.1:0")
    with socket.create_connection(found.sockets[0].getsockname()) as client:
        found.sockets[0].accept()[0].close()
        client.recv(1)
    found.close()
    again = opened(found.address)
    assert accepts(again.sockets[0])
    again.close()


def test_a_port_held_with_reuseport() -> None:
    """Another service's SO_REUSEPORT does not let us in beside it."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(BindError, match="taken"):
            opened(f"127.0.0.1:{other.getsockname()[1]}")


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_is_not_this_machines(host: str) -> None:
    """The reason is the system's, the address the config's."""
    with pytest.raises(BindError, match=f"bind {host}:0"):
        opened(f"{host}:0")


def test_unix(short: Path) -> None:
    """Whoever may reach the folder may connect; the socket goes with its listener."""
    path = short / "public.sock"
    found = opened(f"unix:{path}")
    assert found.address == f"unix:{path}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o666
    assert accepts(found.sockets[0])
    found.close()
    assert not path.exists()


def test_a_stale_unix_socket_is_replaced(short: Path) -> None:
    """A crashed service's: nobody listens there any more."""
    path = short / "public.sock"
    with socket.socket(socket.AF_UNIX) as crashed:
        crashed.bind(str(path))
        crashed.listen()
    found = opened(f"unix:{path}")
    assert accepts(found.sockets[0])
    found.close()


def test_a_unix_socket_that_somebody_listens_on_is_left_alone(short: Path) -> None:
    """And so is a file that is no socket."""
    path = short / "public.sock"
    found = opened(f"unix:{path}")
    with pytest.raises(BindError, match="taken"):
        opened(f"unix:{path}")
    assert accepts(found.sockets[0])
    found.close()
    path.write_text("a letter")
    with pytest.raises(BindError, match="taken"):
        opened(f"unix:{path}")
    assert path.read_text() == "a letter"


def test_a_successors_unix_socket_is_not_removed(short: Path) -> None:
    """The path is looked at again before it is unlinked."""
    path = short / "public.sock"
    found = opened(f"unix:{path}")
    path.unlink()
    successor = opened(f"unix:{path}")
    found.close()
    assert accepts(successor.sockets[0])
    successor.close()


def test_a_unix_socket_where_there_is_no_folder(short: Path) -> None:
    """The system's reason."""
    with pytest.raises(BindError, match="No such file"):
        opened(f"unix:{short}/nowhere/public.sock")


def test_an_inherited_descriptor() -> None:
    """Listening or not yet; the protocol is known again, and nothing leaks into what is executed."""
    for listening in (True, False):
        with socket.socket(proto=0) as given:
            given.bind(("127.0.0.1", 0))
            if listening:
                given.listen()
            os.set_inheritable(given.fileno(), True)
            found = opened(f"fd://{given.fileno()}")
            assert found.sockets[0].proto == socket.IPPROTO_TCP
            assert accepts(found.sockets[0])
            assert not os.get_inheritable(given.fileno())
            found.close()


def test_descriptors_that_cannot_serve(short: Path) -> None:
    """Not open, no socket, or not a stream."""
    with pytest.raises(BindError, match=r"bind fd://987654: .*Bad file descriptor"):
        opened("fd://987654")
    with (short / "file").open("w") as file, pytest.raises(BindError, match="not a socket|non-socket"):
        opened(f"fd://{file.fileno()}")
    with (
        socket.socket(type=socket.SOCK_DGRAM) as datagrams,
        pytest.raises(BindError, match="expected a listening stream"),
    ):
        opened(f"fd://{datagrams.fileno()}")


SYSTEMD = """
import json, os, sys
from supervisor.config import Bind
from supervisor.errors import BindError
from supervisor.listeners import open_listeners
os.environ["LISTEN_PID"] = sys.argv[2].replace("own", str(os.getpid()))
try:
    found = open_listeners(Bind.parse(sys.argv[1]), owners=frozenset({77}))
    print(len(found.sockets), *(one.getsockname()[1] for one in found.sockets))
except BindError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("bind", "owner", "expected"),
    [
        ("systemd:web", "own", "2 {0} {2}"),
        ("systemd:api", "77", "1 {1}"),
        ("systemd:other", "own", "found api, web, expected a socket named other"),
        ("systemd:web", "78", "found no socket from systemd, expected a socket named web"),
    ],
)
def test_sockets_from_systemd(bind: str, owner: str, expected: str) -> None:
    """By name, several of one name too, and only when they were passed to guardian or supervisor."""
    given = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [one.getsockname()[1] for one in given]
    saved = {number: os.dup(number) for number in (3, 4, 5) if is_open(number)}
    try:
        numbers = [os.dup(one.fileno()) for one in given]
        place = "".join(f"{number}<&{source} " for number, source in zip((3, 4, 5), numbers, strict=True))
        code = f'exec {place} && exec "$@"'
        done = subprocess.run(
            ["bash", "-c", code, "bash", sys.executable, "-c", SYSTEMD, bind, owner],
            env={
                **os.environ,
                "LISTEN_FDS": "3",
                "LISTEN_FDNAMES": "web:api:web",
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            pass_fds=numbers,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    finally:
        for number in [*numbers, *saved.values()]:
            os.close(number)
        for one in given:
            one.close()
    assert expected.format(*ports) in done.stdout, done.stderr


def is_open(number: int) -> bool:
    """Whether a descriptor is open."""
    try:
        os.fstat(number)
    except OSError as error:
        assert error.errno == errno.EBADF
        return False
    return True
