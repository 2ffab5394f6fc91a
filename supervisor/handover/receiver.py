"""Receiving connections from other workers, in the loop, beside its transports: they cannot take descriptors."""

from __future__ import annotations

import array
import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable

from supervisor.handover.packet import LONGEST, BadPacket, unpack
from supervisor.relay import unix

logger = logging.getLogger("gym_supervise.handover")

MOST_AT_ONCE = 16
"""Packets of one worker; then the loop gets its turn."""

EXHAUSTED_PAUSE_SECONDS = 0.1

_ROOM = socket.CMSG_SPACE(4 * 4)  # more than one descriptor is a mistake, and is closed; the kernel closes what is over
_FLAGS = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC

Take = Callable[[socket.socket, bytes], None]


class Receiver:
    """Where one worker takes connections.

    Args:
        path: of its socket.
        me: its incarnation.
        take: is given each connection, with the bytes that come before its own.

    """

    def __init__(self, path: str, me: int, take: Take) -> None:
        self._path = path
        self._me = me
        self._take = take
        self._uid = os.getuid()
        self._loop = asyncio.get_running_loop()
        self._listener = unix.listen(path, socket.SOCK_SEQPACKET)
        self._peers: set[socket.socket] = set()
        self._pauses: set[asyncio.TimerHandle] = set()
        self._open = True

    def start(self) -> None:
        """Begin to take them."""
        self._loop.add_reader(self._listener, self._accept)

    def stop(self) -> None:
        """Take those that have been sent, and no more: whoever sends one from now on is told so, and keeps it."""
        if not self._open:
            return
        self._open = False
        for pause in self._pauses:
            pause.cancel()
        self._loop.remove_reader(self._listener)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self._listener.shutdown(socket.SHUT_RD)  # from here on connect(2) fails; those that wait can be accepted
        self._accept()
        self._listener.close()
        for peer in list(self._peers):
            peer.shutdown(socket.SHUT_RD)  # from here on sendmsg(2) fails; what waits can be read
            while peer in self._peers and self._receive(peer):
                pass
            self._forget(peer)

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:  # nobody waits, or it was shut down; or no descriptor is left, and the sender waits
                return
            try:
                unix.check_peer(peer, self._uid)
            except unix.ForeignPeer as error:
                logger.error("hand-over: connection refused: %s", error)  # noqa: TRY400 (the trace says nothing more)
                peer.close()
                continue
            peer.setblocking(False)
            self._peers.add(peer)
            if self._open:
                self._loop.add_reader(peer, self._readable, peer)

    def _readable(self, peer: socket.socket) -> None:
        for _ in range(MOST_AT_ONCE):
            if not self._receive(peer):
                return

    def _receive(self, peer: socket.socket) -> bool:
        """Take one packet; False: there is none now, or never again."""
        if not self._has_room(peer):
            return False
        try:
            packet, ancillary, flags, _ = peer.recvmsg(LONGEST, _ROOM, _FLAGS)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            logger.debug("hand-over: a worker's connection ended: %s", error)
            self._forget(peer)
            return False
        descriptors = array.array("i")
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
        if not packet and not descriptors:
            self._forget(peer)
            return False
        try:
            first = unpack(packet, self._me)
            check_whole(len(descriptors), flags)
            connection = socket.socket(fileno=descriptors[0])
        except (BadPacket, OSError) as error:
            for descriptor in descriptors:
                os.close(descriptor)
            logger.error("hand-over: a packet cannot be used: %s", error)  # noqa: TRY400 (the trace says nothing more)
            return True
        connection.setblocking(False)
        self._take(connection, first)
        return True

    def _has_room(self, peer: socket.socket) -> bool:
        """Whether a descriptor is left for the next one. The kernel would drop it: then it waits where it is."""
        try:
            os.close(os.dup(peer.fileno()))
        except OSError:
            if self._open:
                logger.error("overloaded: cannot take a connection; raise LimitNOFILE or ulimit -n")  # noqa: TRY400
                self._pause(peer)
            return False
        return True

    def _pause(self, peer: socket.socket) -> None:
        self._loop.remove_reader(peer)

        def resume() -> None:
            self._pauses.discard(timer)
            if self._open and peer in self._peers:
                self._loop.add_reader(peer, self._readable, peer)

        timer = self._loop.call_later(EXHAUSTED_PAUSE_SECONDS, resume)
        self._pauses.add(timer)

    def _forget(self, peer: socket.socket) -> None:
        if peer not in self._peers:
            return
        self._peers.discard(peer)
        self._loop.remove_reader(peer)
        peer.close()


def check_whole(descriptors: int, flags: int) -> None:
    """A packet has one descriptor, and nothing of it was cut off. Raises BadPacket."""
    if descriptors != 1 or flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC):
        raise BadPacket(f"found {descriptors} descriptors and flags {flags:#x}, expected one, and all of it")
