"""uvicorn inside a worker: public API only, with the listeners and the end under the supervisor's command."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol

import uvicorn

from supervisor.handover.protocols import Hands, leaving
from supervisor.worker import connections
from supervisor.worker.acceptor import Acceptor
from supervisor.worker.turns import Turns

logger = logging.getLogger("gym_supervise.worker")

QUIET_POLL_SECONDS = 0.02

FIRST_REQUEST_SECONDS = 0.5
"""At a stop a client that has just connected has so long to say what it wants. Closed at once, it would see a reset,
since its request is on its way or unread; a socket unit promises that nobody sees a restart.
"""


LAST_SECONDS = 0.5
"""Of the time that an end may take, or half of it: for the lifespan's shut-down, when all else is cancelled."""


class Entrance(Protocol):
    """Where public connections come in."""

    @property
    def pending(self) -> int:
        """Those that have no protocol yet."""

    def start(self) -> None:
        """Open it."""

    def stop(self) -> None:
        """Close it for good."""


class Server(uvicorn.Server):
    """A uvicorn server that opens its listeners when told, and stops on a command instead of a signal.

    `opens` is awaited once the app's lifespan start-up is done, `drains` before its shut-down, with the seconds that it
    may take; `tells` tells relayed requests that it is over. `started` and `server_state` are uvicorn's. On SIGTERM
    uvicorn raises the signal again at its end and so ends with -15 before anything after `serve` could run: signals are
    the worker's affair here.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        opens: Callable[[], Awaitable[None]],
        drains: Callable[[float], Awaitable[None]],
        tells: Callable[[], None],
        hands: Hands | None = None,
    ) -> None:
        super().__init__(config)
        self._leaving = None if hands is None or config.ssl is not None else leaving(config.http_protocol_class, hands)
        self._opens = opens
        self._drains = drains
        self._tells = tells
        self._cancel_at = 0.0  # of the loop's clock
        self._telling: asyncio.TimerHandle | None = None
        self._entrances: list[Entrance] = []
        self._closed = False
        self._first_requests_until: float | None = None  # of the loop's clock; None: it does not stop

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the process's signal handlers alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Run the lifespan's start-up, then open this worker's listeners."""
        await super().startup(sockets=sockets)
        await self._opens()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let relayed requests end, then close as uvicorn does."""
        self.stop_accepting()
        while self._expecting:
            self._end_connections()
            await asyncio.sleep(QUIET_POLL_SECONDS)
        await self._drains(self._left)
        self.config.timeout_graceful_shutdown = self._left  # type: ignore[assignment]  # asyncio.wait_for takes fractions
        await super().shutdown(sockets=sockets)
        if self._telling is not None:
            self._telling.cancel()

    def accept(self, listener: socket.socket, turns: Turns) -> None:
        """Accept public connections from a shared listener, unless this worker's end has begun meanwhile."""
        self._open_entrance(Acceptor(listener, self._make_protocol, turns, tls=self.config.ssl))

    @property
    def connections_can_move(self) -> bool:
        """Whether they can be handed to other workers, and come from there."""
        return self._leaving is not None

    def take_over(self, entrance: Entrance) -> None:
        """Take connections from other workers, unless this worker's end has begun meanwhile."""
        self._open_entrance(entrance)

    def _open_entrance(self, entrance: Entrance) -> None:
        self._entrances.append(entrance)
        if self._closed:
            entrance.stop()
        else:
            entrance.start()

    def count(self) -> int:
        """Public connections, those in a handshake included."""
        return len(self.server_state.connections) + sum(entrance.pending for entrance in self._entrances)

    @property
    def idle(self) -> bool:
        """Whether there is no public connection and no request."""
        return not self.server_state.connections and not self.server_state.tasks and not self._expecting

    def close_listeners(self) -> None:
        """Close this worker's part of the public listeners; the connections that are there stay."""
        self._closed = True
        for entrance in self._entrances:
            entrance.stop()

    def stop_accepting(self) -> None:
        """The same, and idle connections end, busy ones after their reply, new ones after their first request's."""
        self.close_listeners()
        if self._first_requests_until is None:
            self._first_requests_until = asyncio.get_running_loop().time() + FIRST_REQUEST_SECONDS
        self._end_connections()

    def close_unused(self) -> None:
        """Close the connections that have never had a request."""
        for connection in list(self.server_state.connections):
            if connections.unused(connection):
                connection.shutdown()

    def close_idle_streams(self) -> None:
        """Close the connections of HTTP/2 that are without a request."""
        for connection in list(self.server_state.connections):
            if connections.idle_streams(connection):
                connection.shutdown()

    async def quiet(self) -> None:
        """Return when no public connection is left."""
        while not self.idle:
            self._end_connections()  # also those that were still in their handshake when the listener closed
            await asyncio.sleep(QUIET_POLL_SECONDS)

    def finish(self, seconds: float, *, patience_seconds: float) -> None:
        """End within `seconds`: what runs after `patience_seconds` is told, then cancelled, then the lifespan ends."""
        loop = asyncio.get_running_loop()
        self._cancel_at = loop.time() + seconds - min(LAST_SECONDS, seconds / 2)
        self._telling = loop.call_later(patience_seconds, self._tell)
        self.should_exit = True

    @property
    def _left(self) -> float:
        return max(self._cancel_at - asyncio.get_running_loop().time(), 0.0)

    def _tell(self) -> None:
        """Apps that still run hear that their client is gone: http.disconnect, or a WebSocket closed with 1012."""
        for connection in list(self.server_state.connections):
            connections.tell(connection)
        self._tells()

    def _end_connections(self) -> None:
        for connection in list(self.server_state.connections):
            if not self._expects(connection):
                connection.shutdown()

    @property
    def _expecting(self) -> bool:
        """Whether a request may be on its way that has to be served before the end."""
        if self._may_still_come and any(entrance.pending for entrance in self._entrances):
            return True
        return any(self._expects(connection) for connection in self.server_state.connections)

    @property
    def _may_still_come(self) -> bool:
        return self._first_requests_until is not None and asyncio.get_running_loop().time() < self._first_requests_until

    def _expects(self, connection: Any) -> bool:
        return self._may_still_come and connections.expects(connection)

    def protocol_of_taken(self, first: bytes) -> asyncio.Protocol:
        """A protocol for a connection from another worker; `first` was read of it there."""
        protocol = self._make_protocol()
        protocol.first = first  # type: ignore[attr-defined]
        return protocol

    def _make_protocol(self) -> asyncio.Protocol:
        protocol: asyncio.Protocol = (self._leaving or self.config.http_protocol_class)(  # type: ignore[call-arg]
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            _loop=asyncio.get_running_loop(),
        )
        with contextlib.suppress(AttributeError):  # a protocol of the user's own may have none
            protocol.access_log = False  # type: ignore[attr-defined]  # the router's own line says more
        return protocol
