"""Unix sockets between processes of one user: listening, connecting, and whom one has at the other end."""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Any, Protocol

# sun_path has 108 bytes with its closing zero: unix(7).
MAX_PATH = 107
# What the kernel makes of it is net.core.somaxconn.
BACKLOG = 65535

# What may be under way to a peer that is busy. The kernel doubles it, and caps it at net.core.wmem_max before that; its
# default is not doubled, and a large body would stop and go twice as often.
SEND_BUFFER = 212992

_UCRED = struct.Struct("3i")


class ForeignPeer(PermissionError):
    """The process at the other end belongs to another user."""


class HasOptions(Protocol):
    """A socket, or what a transport shows of one."""

    def getsockopt(self, level: int, option: int, size: int, /) -> Any:
        """As `socket.getsockopt` with a buffer's size."""


def check_peer(sock: HasOptions, uid: int) -> None:
    """Make sure that the process at the other end belongs to user `uid`.

    The kernel vouches for it: on a connected socket it is the user that called listen(), on an accepted one the user
    that called connect(). On a socket that is not connected at all it is nobody.

    Raises:
        ForeignPeer: it does not.

    """
    _pid, found, _gid = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    if found != uid:
        raise ForeignPeer(errno.EPERM, f"the peer's uid is {found}, expected {uid}")


def listen(path: str, kind: int = socket.SOCK_STREAM) -> socket.socket:
    """A listening socket at `path`, mode 0600 from its first moment; one that a crashed process left is replaced.

    Raises:
        OSError: ENAMETOOLONG names the limit; others as bind(2).

    """
    size = len(os.fsencode(path))
    if size > MAX_PATH:
        raise OSError(errno.ENAMETOOLONG, f"a Unix socket's path may have {MAX_PATH} bytes, found {size}", path)
    sock = socket.socket(socket.AF_UNIX, kind)
    try:
        sock.setblocking(False)
        os.fchmod(sock.fileno(), 0o600)  # bind(2) gives the file the socket's mode
        try:
            sock.bind(path)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            os.unlink(path)
            sock.bind(path)
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def connect(path: str, uid: int, kind: int = socket.SOCK_STREAM) -> socket.socket:
    """A non-blocking socket connected to the listener of user `uid` at `path`.

    A Unix socket connects at once or not at all. Leaving it to the loop would hide a full backlog (EAGAIN): asyncio
    takes that for a connection in progress, and then for an established one.

    Raises:
        OSError: as connect(2); ForeignPeer.

    """
    sock = socket.socket(socket.AF_UNIX, kind)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        sock.connect(path)
        check_peer(sock, uid)
    except BaseException:
        sock.close()
        raise
    return sock
