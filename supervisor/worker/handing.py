"""Connections that come from other workers, and those that go there: `handover` in a worker."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from supervisor.handover.receiver import Receiver
from supervisor.handover.sender import Sender
from supervisor.processes.worker_spec import WorkerSpec, handover_path
from supervisor.routing.request import Scope
from supervisor.routing.router import Router
from supervisor.worker.beginnings import Beginnings


class Giving:
    """Gives this worker's connections to others; closed, or with no siblings, it gives none."""

    def __init__(self, spec: WorkerSpec, router: Router) -> None:
        self._sender = Sender(
            spec.segment.ring, lambda incarnation: handover_path(spec.runtime_dir, spec.name, incarnation)
        )
        self._router = router
        self.on = False

    def give(self, owner: int, descriptor: int, first: bytes) -> bool:
        """Send a connection; False: it stays."""
        return self.on and self._sender.send(owner, descriptor, first)

    def elsewhere(self, scope: Scope) -> int | None:
        """The other worker that a WebSocket's session lives in, if it is known at once."""
        return self._router.elsewhere(scope) if self.on else None

    def close(self) -> None:
        """Give no more."""
        self.on = False
        self._sender.close()


class Taking:
    """Serves the connections that other workers hand to this one, as if it had accepted them.

    protocol  makes the protocol of one, from the bytes that come before its own
    taken     is called after some have come
    """

    def __init__(
        self, path: str, me: int, protocol: Callable[[bytes], asyncio.Protocol], taken: Callable[[], object]
    ) -> None:
        self._receiver = Receiver(path, me, self._take)
        self._protocol = protocol
        self._taken = taken
        self._beginnings = Beginnings()

    @property
    def pending(self) -> int:
        """Connections that have come and have no protocol yet."""
        return len(self._beginnings)

    def start(self) -> None:
        """Begin to take them."""
        self._receiver.start()

    def stop(self) -> None:
        """Take those that are on their way, and no more."""
        self._receiver.stop()

    def _take(self, connection: socket.socket, first: bytes) -> None:
        self._beginnings.add(connection, lambda: self._protocol(first))
        self._taken()
