"""When a connection leaves for another worker: between two requests, or with a WebSocket's handshake.

Between requests: once the last IN_A_ROW of them have gone to the same other worker by their session's claim. Reading
stops in the step that ends the last reply; one turn of the loop later that reply has been written, and a connection
with nothing half-read or half-written goes. What the client has sent meanwhile is in the kernel, and goes with it.

With a handshake: its head has been read, and nothing is answered; it goes before uvicorn makes its WebSocket protocol
and is parsed again there, as uvicorn does itself. (Bytes that came with it are lost there as they are here: uvicorn
drops what follows an upgrade's head in the same read. A client has no business to send them before the answer.)

Only uvicorn's two protocols of HTTP/1.1 are known to us, each by what it shows of its state; on others, with TLS, and
where anything is in doubt, a connection stays and its requests are relayed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import unquote

from supervisor.routing.request import RELAYED_TO, Scope

logger = logging.getLogger("gym_supervise.handover")

IN_A_ROW = 8
"""Requests to one other worker. A pool that mixes sessions over 4 workers has five by chance once in some 340 requests,
which cost it 2 % of its CPU (docs/performance.md). It has eight once in 22,000.
"""

WITH_BODY = frozenset({b"content-length", b"transfer-encoding"})


class Hands(Protocol):
    """What a connection needs of its worker to leave it."""

    def give(self, owner: int, descriptor: int, first: bytes) -> bool:
        """Send it; False: it stays."""

    def elsewhere(self, scope: Scope) -> int | None:
        """The other worker that a WebSocket's session lives in, if it is known at once."""


class Leaving:
    """Mixed into one of uvicorn's protocols: its connections can leave, and come from other workers.

    first  bytes that were read of it where it comes from; None: it was accepted here
    """

    hands: Hands
    first: bytes | None = None
    _owner: int | None = None
    _in_a_row = 0

    # of uvicorn's protocols
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    flow: Any
    cycle: Any
    headers: list[tuple[bytes, bytes]]
    root_path: str

    def connection_made(self, transport: asyncio.Transport) -> None:
        """As uvicorn's; one that comes from another worker is idle, or has its first bytes with it."""
        super().connection_made(transport)  # type: ignore[misc]
        first, self.first = self.first, None
        if first:
            self.data_received(first)  # type: ignore[attr-defined]
        elif first is not None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive,  # type: ignore[attr-defined]
                self.timeout_keep_alive_handler,  # type: ignore[attr-defined]
            )

    def on_response_complete(self) -> None:
        """As uvicorn's; then the connection may leave."""
        cycle = self.cycle
        super().on_response_complete()  # type: ignore[misc]
        owner = cycle.scope.get(RELAYED_TO)
        if owner is None:
            self._owner = None
            return
        self._in_a_row = self._in_a_row + 1 if owner == self._owner else 1
        self._owner = owner
        if self._in_a_row >= IN_A_ROW and self._at_rest(cycle):
            self.flow.pause_reading()
            self.loop.call_soon(self._leave, owner, cycle)

    def _leave(self, owner: int, cycle: Any) -> None:
        transport = self.transport
        if transport.is_closing():
            return
        if self._at_rest(cycle) and not transport.get_write_buffer_size():
            if self._give(owner, b""):
                return
            self._in_a_row = 0
        self.flow.resume_reading()

    def handle_websocket_upgrade(self, *event: Any) -> None:
        """As uvicorn's, unless the WebSocket's session lives in another worker, and it goes there."""
        try:
            left = self._leave_with(*self._asked(*event))
        except Exception:
            logger.exception("a WebSocket could not be handed over; it is relayed")
            left = False
        if not left:
            super().handle_websocket_upgrade(*event)  # type: ignore[misc]

    def _leave_with(self, method: bytes, target: bytes) -> bool:
        cycle, transport = self.cycle, self.transport
        if cycle is not None and not cycle.response_complete:
            return False
        if transport.is_closing() or transport.get_write_buffer_size():
            return False
        if not (target.startswith(b"/") and target.isascii()) or any(name in WITH_BODY for name, _ in self.headers):
            return False
        owner = self.hands.elsewhere(_websocket_scope(target, self.headers, self.root_path))
        if owner is None:
            return False
        lines = [name + b": " + value + b"\r\n" for name, value in self.headers]
        return self._give(owner, b"".join([method, b" ", target, b" HTTP/1.1\r\n", *lines, b"\r\n"]))

    def _give(self, owner: int, first: bytes) -> bool:
        """Send the connection, and end what is left of it here: nothing of it is read or written from now on."""
        transport = self.transport
        descriptor = transport.get_extra_info("socket").fileno()
        if not self.hands.give(owner, descriptor, first):
            return False
        transport.abort()
        return True

    def _at_rest(self, cycle: Any) -> bool:
        """Whether the reply of `cycle` is complete and nothing of another request has been read."""
        raise NotImplementedError

    def _asked(self, *event: Any) -> tuple[bytes, bytes]:
        """Method and target of the request that is an upgrade."""
        raise NotImplementedError


class LeavingHttpTools(Leaving):
    """With httptools: each request begins with a scope of its own, from its first byte on."""

    scope: Scope
    url: bytes

    def _at_rest(self, cycle: Any) -> bool:
        return (
            self.cycle is cycle
            and self.scope is cycle.scope
            and cycle.response_complete
            and cycle.keep_alive
            and not cycle.more_body
        )

    def _asked(self, *_event: Any) -> tuple[bytes, bytes]:
        return self.scope["method"].encode(), self.url


class LeavingH11(Leaving):
    """With h11: its state says whether a request is over, and what it holds that is not parsed yet."""

    conn: Any

    def _at_rest(self, cycle: Any) -> bool:
        import h11

        conn = self.conn
        return (
            self.cycle is cycle
            and cycle.response_complete
            and conn.our_state is h11.IDLE
            and conn.trailing_data == (b"", False)
        )

    def _asked(self, *event: Any) -> tuple[bytes, bytes]:
        return event[0].method, event[0].target


MIXED_INTO = {
    "uvicorn.protocols.http.httptools_impl.HttpToolsProtocol": LeavingHttpTools,
    "uvicorn.protocols.http.h11_impl.H11Protocol": LeavingH11,
}


def leaving(protocol: Any, hands: Hands) -> Callable[..., Any] | None:
    """The same protocol with connections that can leave; None: it is not one of those that are known."""
    if not isinstance(protocol, type):
        return None
    mixin = MIXED_INTO.get(f"{protocol.__module__}.{protocol.__qualname__}")
    return None if mixin is None else type(protocol.__name__, (mixin, protocol), {"hands": hands})


def _websocket_scope(target: bytes, headers: list[tuple[bytes, bytes]], root_path: str) -> Scope:
    path, _, query = target.partition(b"?")
    return {
        "type": "websocket",
        "root_path": root_path,
        "path": root_path + unquote(path.decode("ascii")),
        "raw_path": root_path.encode("ascii") + path,
        "query_string": query,
        "headers": headers,
    }
