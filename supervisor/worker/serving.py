"""uvicorn inside a worker: public API only, with the listeners and the end under the supervisor's command."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator

import uvicorn

from supervisor.worker.acceptor import Acceptor

logger = logging.getLogger("gym_supervise.worker")

QUIET_POLL_SECONDS = 0.02


class Server(uvicorn.Server):
    """A uvicorn server that opens its listeners when told, and stops on a command instead of a signal.

    `opens` is awaited once the app's lifespan start-up is done, `drains` before its shut-down; `started` and
    `server_state` are uvicorn's. On SIGTERM uvicorn raises the signal again at its end and so ends with -15 before
    anything after `serve` could run: signals are the worker's affair here.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        opens: Callable[[], Awaitable[None]],
        drains: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(config)
        self._opens = opens
        self._drains = drains
        self._acceptors: list[Acceptor] = []

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
        await self._drains()
        await super().shutdown(sockets=sockets)

    def accept(self, listener: socket.socket, *, mine: Callable[[], int], fewest: Callable[[], int]) -> None:
        """Accept public connections from a shared listener."""
        acceptor = Acceptor(listener, self._make_protocol, mine=mine, fewest=fewest, tls=self.config.ssl)
        self._acceptors.append(acceptor)
        acceptor.start()

    @property
    def idle(self) -> bool:
        """Whether there is no public connection and no request."""
        return not self.server_state.connections and not self.server_state.tasks

    def close_listeners(self) -> None:
        """Close this worker's part of the public listeners; the connections that are there stay."""
        for acceptor in self._acceptors:
            acceptor.stop()
        self._acceptors.clear()

    def stop_accepting(self) -> None:
        """The same, and idle connections end, busy ones after their reply."""
        self.close_listeners()
        for connection in list(self.server_state.connections):
            connection.shutdown()

    def close_unused(self) -> None:
        """Close the connections that have never had a request."""
        for connection in list(self.server_state.connections):
            if getattr(connection, "cycle", ...) is None:  # a WebSocket has none
                connection.shutdown()

    async def quiet(self) -> None:
        """Return when no public connection is left."""
        while not self.idle:
            for connection in list(self.server_state.connections):
                connection.shutdown()  # one that was still in its handshake when the listener closed
            await asyncio.sleep(QUIET_POLL_SECONDS)

    def finish(self, seconds: float) -> None:
        """End: shut the lifespan down once what runs has ended, or after `seconds`."""
        self.config.timeout_graceful_shutdown = seconds  # type: ignore[assignment]  # asyncio.wait_for takes fractions
        self.should_exit = True

    def _make_protocol(self) -> asyncio.Protocol:
        protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            _loop=asyncio.get_running_loop(),
        )
        with contextlib.suppress(AttributeError):  # a protocol of the user's own may have none
            protocol.access_log = False  # type: ignore[attr-defined]  # the router's own line says more
        return protocol
