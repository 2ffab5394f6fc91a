"""Connections that have come to this worker and have no protocol yet: in a TLS handshake, or about to get one."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

logger = logging.getLogger("gym_supervise.worker")


class Beginnings:
    """Gives connections their protocols, each in a task of its own; `tls`: after a handshake."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, connection: socket.socket, protocol: Callable[[], asyncio.Protocol]) -> None:
        """Begin with a non-blocking socket, which is closed if it ends first."""
        task = self._loop.create_task(self._begin(connection, protocol))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _begin(self, connection: socket.socket, protocol: Callable[[], asyncio.Protocol]) -> None:
        try:
            await self._loop.connect_accepted_socket(protocol, connection, ssl=self._tls)
        except OSError as error:  # ssl.SSLError is one
            logger.debug("a connection ended before its first request: %s", error)
            connection.close()
