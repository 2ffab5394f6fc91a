"""What a worker is given by the supervisor that forked it.

Everything here is inherited through the fork, never opened again by name: a log-out may have removed the names.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from supervisor.config import Config, ServerConfig

if TYPE_CHECKING:
    from shmclaims.segment import Segment


@dataclass(frozen=True)
class WorkerSpec:
    """One worker of one server.

    name          the server's name in the config
    index         its seat, 0 .. workers - 1
    incarnation   its number in the segment's worker ring, never used twice
    segment       the server's table, ring and stripes, mapped before the fork
    listeners     the public sockets, listening and non-blocking, shared by all workers of the server
    link          SOCK_SEQPACKET to the supervisor, non-blocking; carries supervisor.messages
    runtime_dir   where the private sockets are
    workers       how many the server has
    shared        it has had several: sessions are claimed in the table, however many there are now
    stacks        a descriptor for the stacks of its threads, when it hangs; -1: none
    """

    config: Config
    server: ServerConfig
    name: str
    index: int
    incarnation: int
    segment: Segment
    listeners: list[socket.socket]
    link: socket.socket
    runtime_dir: str
    workers: int
    shared: bool = False
    stacks: int = -1

    @property
    def private_path(self) -> str:
        """Where this worker takes relayed requests."""
        return private_path(self.runtime_dir, self.name, self.incarnation)

    @property
    def handover_path(self) -> str:
        """Where this worker takes connections that others hand to it."""
        return handover_path(self.runtime_dir, self.name, self.incarnation)


def private_path(runtime_dir: str, server: str, incarnation: int) -> str:
    """The private socket of a worker; its name has the incarnation, so that a successor is never taken for it."""
    return f"{runtime_dir}/{server}.{incarnation}.sock"


def handover_path(runtime_dir: str, server: str, incarnation: int) -> str:
    """The same for connections; no longer than the other's, so that one check is for both."""
    return f"{runtime_dir}/{server}.{incarnation}.fds"
