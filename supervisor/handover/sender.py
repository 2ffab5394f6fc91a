"""Sending a connection's descriptor to another worker: at once, or not at all.

One SOCK_SEQPACKET connection to each worker, kept: a packet arrives whole, in order, with its descriptor, and what
waits is bounded by the send buffer. With SOCK_DGRAM ten would be (net.unix.max_dgram_qlen), fewer than a burst of
WebSockets has, and the kernel would not say to whom it goes.
"""

from __future__ import annotations

import array
import logging
import os
import socket
import time
from collections.abc import Callable

from shmclaims import RowState, WorkerRing
from supervisor.handover.packet import MOST_FIRST_BYTES, pack
from supervisor.relay import unix
from supervisor.routing.placement import SILENT_SECONDS

logger = logging.getLogger("gym_supervise.handover")


class Sender:
    """This worker's ways to the others. `path_of` says where a worker, by its incarnation, takes connections."""

    def __init__(self, ring: WorkerRing, path_of: Callable[[int], str]) -> None:
        self._ring = ring
        self._path_of = path_of
        self._uid = os.getuid()
        self._socks: dict[int, socket.socket] = {}

    def send(self, owner: int, descriptor: int, first: bytes) -> bool:
        """Give `owner` the connection. False: it was not sent, and nothing has changed.

        True: the other worker has it, or gets it when its loop comes round; the caller closes its own copy, without a
        shutdown(2), which would be one of the connection and not of the descriptor.
        """
        if len(first) > MOST_FIRST_BYTES or not self._takes(owner):
            return False
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
        try:
            sock = self._socks.get(owner) or self._connect(owner)
            sock.sendmsg([pack(owner, first)], rights, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False  # it is busy: its connection is relayed for a while longer
        except OSError as error:
            logger.debug("a connection cannot be handed to worker %d: %s", owner, error)
            self._drop(owner)
            return False
        return True

    def close(self) -> None:
        """Close the ways to the others; what was sent stays sent."""
        for owner in list(self._socks):
            self._drop(owner)

    def _takes(self, owner: int) -> bool:
        """Whether it is ready and its loop turns: a connection would wait with one that is stalled, for any session."""
        row = self._ring.row(owner)
        if row is None or row.state is not RowState.READY:
            return False
        return row.heartbeat_at >= (time.monotonic() - SILENT_SECONDS) * 1000

    def _connect(self, owner: int) -> socket.socket:
        for known in list(self._socks):
            if not self._ring.is_live(known):
                self._drop(known)
        sock = unix.connect(self._path_of(owner), self._uid, socket.SOCK_SEQPACKET)
        self._socks[owner] = sock
        return sock

    def _drop(self, owner: int) -> None:
        sock = self._socks.pop(owner, None)
        if sock is not None:
            sock.close()
