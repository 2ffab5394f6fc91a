"""What uvicorn's connections show of themselves: which is new, idle or busy, on each of its protocols.

HTTP/1      cycle: the last request; None: there was none yet
HTTP/2      cycles: the requests under way, by stream
undecided   server_state alone: its first bytes tell whether it is HTTP/1 or 2
WebSocket   none of these
"""

from __future__ import annotations

import asyncio
import fcntl
import sys
import termios
from typing import Any


def unused(connection: Any) -> bool:
    """Whether it has never had a request. One of HTTP/2 is not told from an idle one, which is asked to end anyway."""
    if hasattr(connection, "cycles"):
        return False
    return getattr(connection, "cycle", ...) is None or _undecided(connection)


def expects(connection: Any) -> bool:
    """Whether it is without a request, and one may be on its way that has to be served."""
    if hasattr(connection, "cycles"):
        return not connection.cycles and _unread(connection.transport)
    cycle = getattr(connection, "cycle", ...)
    if cycle is ...:
        return _undecided(connection)
    return cycle is None or (cycle.response_complete and _unread(connection.transport))


def idle_streams(connection: Any) -> bool:
    """Whether it is one of HTTP/2 without a request. No reply tells its client to go elsewhere, so it must be closed:
    HTTP/2's word for that says which requests were not taken.
    """
    return hasattr(connection, "cycles") and not connection.cycles and not _unread(connection.transport)


def tell(connection: Any) -> None:
    """Its apps hear that their client is gone: http.disconnect, or a WebSocket closed with 1012."""
    if hasattr(connection, "cycle") or hasattr(connection, "cycles"):
        connection.transport.close()
    else:
        connection.shutdown()


def _undecided(connection: Any) -> bool:
    return hasattr(connection, "server_state") and not hasattr(connection, "cycle")


def _unread(transport: asyncio.Transport) -> bool:
    """Whether bytes have come that nobody has read yet."""
    descriptor = transport.get_extra_info("socket").fileno()
    if descriptor < 0:
        return False
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder) > 0
