"""The public sockets: one set for each server, opened by the supervisor and shared by all its workers.

No SO_REUSEPORT: with it a second service of the same user would bind the same port in silence, and a booting or stuck
worker's listener would still get its part of the connections. So a bind that succeeds proves that the port is ours.

The supervisor never accepts. Its copies keep the backlog while workers come and go, and are closed when a stop begins.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from supervisor.config import Bind
from supervisor.errors import BindError

PROBE_SECONDS = 3.0
"""A predecessor that is just ending, and a killed one's guardian, need moments to give the address back."""

PROBE_PAUSE_SECONDS = 0.05
FIRST_INHERITED = 3  # sd_listen_fds(3)
PUBLIC_MODE = 0o666  # whoever may reach the folder may connect, as with uvicorn's --uds


def backlog() -> int:
    """The most the kernel grants: what does not fit is refused, and a burst must not be."""
    try:
        with open("/proc/sys/net/core/somaxconn", "rb") as file:
            return int(file.read())
    except OSError:
        return socket.SOMAXCONN


@dataclass
class Listeners:
    """A server's public sockets, non-blocking.

    address   where they listen, with the port that the kernel chose
    """

    sockets: list[socket.socket]
    address: str
    _unlink: Callable[[], None] = field(default=lambda: None)

    def close(self) -> None:
        """Close this process's copies and remove what was made for them."""
        for one in self.sockets:
            one.close()
        self.sockets.clear()
        unlink, self._unlink = self._unlink, lambda: None
        unlink()


def open_listeners(
    bind: Bind, *, owners: frozenset[int] = frozenset(), environment: Mapping[str, str] = os.environ
) -> Listeners:
    """Open the sockets of one bind.

    Args:
        bind: the config's.
        owners: pids for which systemd may have passed sockets, beside this process: the guardian's.
        environment: where LISTEN_FDS and its like are.

    Raises:
        BindError: the address is taken, or cannot be had.

    """
    match bind.kind:
        case "tcp":
            return _patiently(bind, lambda: _tcp(bind))
        case "unix":
            return _patiently(bind, lambda: _unix(bind))
        case "fd":
            return Listeners([_inherited(bind, bind.fd)], str(bind))
        case "systemd":
            return _systemd(bind, owners | {os.getpid()}, environment)


def _patiently(bind: Bind, attempt: Callable[[], Listeners]) -> Listeners:
    deadline = time.monotonic() + PROBE_SECONDS
    while True:
        try:
            return attempt()
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() >= deadline:
                raise _refused(bind, error) from error
            time.sleep(PROBE_PAUSE_SECONDS)  # nothing runs yet that could miss the supervisor


def _refused(bind: Bind, error: OSError) -> BindError:
    if error.errno == errno.EADDRINUSE:
        do = "stop what listens there, or choose another bind"
        return BindError(f"bind {bind}", found="an address that is taken", expected="a free one", do=do)
    if error.errno == errno.EACCES:
        do = "choose a port of 1024 or more" if bind.kind == "tcp" else "choose another folder"
        return BindError(f"bind {bind}", found="no permission", expected="an address this user may have", do=do)
    reason = error.strerror or str(error)
    return BindError(f"bind {bind}", found=reason, expected="an address of this machine")


def _tcp(bind: Bind) -> Listeners:
    """Every address that the name has, all on one port. A name may have an IPv6 address on a machine without IPv6."""
    try:
        found = socket.getaddrinfo(
            bind.host, bind.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        raise BindError(
            f"bind {bind}", found=error.strerror or str(error), expected="a host name or address"
        ) from error
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    opened: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        port = bind.port
        for family, address in addresses:
            try:
                one = _listen(family, (address[0], port, *address[2:]), alone=len(addresses) == 1)
            except OSError as error:
                if opened and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    continue
                if address != addresses[-1][1] and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    continue
                raise
            opened.append(stack.enter_context(one))
            port = port or one.getsockname()[1]
        stack.pop_all()
    host = f"[{bind.host}]" if ":" in bind.host else bind.host
    return Listeners(opened, f"{host}:{port}")


def _listen(family: int, address: tuple[object, ...], *, alone: bool) -> socket.socket:
    """The protocol is named: asyncio sets TCP_NODELAY only where it is, and without it a request can cost 40 ms."""
    one = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK, socket.IPPROTO_TCP)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and not alone:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(address)
        one.listen(backlog())
    except BaseException:
        one.close()
        raise
    return one


def _unix(bind: Bind) -> Listeners:
    _remove_stale_socket(bind.path)
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        one.bind(bind.path)
        os.chmod(bind.path, PUBLIC_MODE)
        one.listen(backlog())
        made = os.lstat(bind.path)
    except BaseException:
        one.close()
        raise
    return Listeners([one], str(bind), lambda: _unlink_own(bind.path, made))


def _remove_stale_socket(path: str) -> None:
    """Remove a socket that nobody listens on; EADDRINUSE when somebody does, or when it is no socket."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise OSError(errno.EADDRINUSE, "a file that is not a socket", path)
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        answer = probe.connect_ex(path)
    if answer == errno.ECONNREFUSED:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    elif answer != errno.ENOENT:
        raise OSError(errno.EADDRINUSE, "somebody listens there", path)


def _unlink_own(path: str, made: os.stat_result) -> None:
    """Remove our socket, not a successor's of the same name."""
    with contextlib.suppress(FileNotFoundError):
        found = os.lstat(path)
        if (found.st_dev, found.st_ino) == (made.st_dev, made.st_ino):
            os.unlink(path)


def _inherited(bind: Bind, descriptor: int) -> socket.socket:
    expected = "a listening stream socket"
    try:
        one = socket.socket(fileno=os.dup(descriptor))
    except OSError as error:
        do = "start the command with that descriptor open" if error.errno == errno.EBADF else ""
        raise BindError(f"bind {bind}", found=error.strerror or str(error), expected=expected, do=do) from error
    if one.type != socket.SOCK_STREAM:
        one.close()
        raise BindError(f"bind {bind}", found=f"a socket of type {one.type}", expected=expected)
    os.set_inheritable(descriptor, False)
    try:
        one.setblocking(False)
        if not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            one.listen(backlog())
    except OSError as error:
        one.close()
        raise BindError(f"bind {bind}", found=error.strerror or str(error), expected=expected) from error
    return one


def _systemd(bind: Bind, owners: frozenset[int], environment: Mapping[str, str]) -> Listeners:
    """Sockets of a socket unit, by its FileDescriptorName= (sd_listen_fds_with_names(3))."""
    given, names = environment.get("LISTEN_PID", ""), []
    if given.isdigit() and int(given) in owners and environment.get("LISTEN_FDS", "").isdigit():
        names = environment.get("LISTEN_FDNAMES", "").split(":")[: int(environment["LISTEN_FDS"])]
    found = [FIRST_INHERITED + number for number, name in enumerate(names) if name == bind.name]
    if not found:
        others = ", ".join(sorted({name for name in names if name})) or "no socket from systemd"
        do = f"set FileDescriptorName={bind.name} in the socket unit and start the service through it"
        raise BindError(f"bind {bind}", found=others, expected=f"a socket named {bind.name}", do=do)
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(_inherited(bind, descriptor)) for descriptor in found]
        stack.pop_all()
    return Listeners(sockets, str(bind))
