"""One owner as an acceptor sees it: is it alive, and the idle connections to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections.abc import Callable

from supervisor.relay import unix
from supervisor.relay.link import Link

# Idle connections kept for one owner. Only idle ones are counted: a request never waits for a place, or two workers
# that relay to each other through their apps could wait for each other for ever.
MAX_IDLE = 128


class Peer:
    """The worker of one incarnation. Its pidfd is opened while its row is live: it is never that of a reused pid."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        path: str,
        uid: int,
        *,
        is_live: Callable[[], bool],
        pid: int | None,
    ) -> None:
        self._loop = loop
        self._path = path
        self._uid = uid
        self._is_live = is_live
        self._idle: list[Link] = []
        self._busy = 0
        self._closed = False
        self._pidfd: int | None = None
        if pid:
            with contextlib.suppress(OSError):  # dead already, or no descriptor left: the row alone tells
                self._pidfd = os.pidfd_open(pid)
            if self._pidfd is not None and not is_live():
                os.close(self._pidfd)
                self._pidfd = None

    def __repr__(self) -> str:
        state = "dead" if self.dead() else "live"
        return f"<Peer {self._path} {state} idle={len(self._idle)} busy={self._busy}>"

    @property
    def idle(self) -> int:
        """Connections without a request."""
        return len(self._idle)

    @property
    def busy(self) -> int:
        """Connections with one."""
        return self._busy

    def dead(self) -> bool:
        """Its row says so, or its process has exited: a stopped supervisor may not have seen that yet."""
        if not self._is_live():
            return True
        if self._pidfd is None:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def take(self) -> Link | None:
        """An idle connection, the last one used; None: there is none."""
        if not self._idle:
            return None
        link = self._idle.pop()
        link.wake()
        self._busy += 1
        return link

    async def connect(self) -> Link:
        """A new connection.

        Raises:
            OSError: it cannot be had, as connect(2) says; ForeignPeer: it is not our owner that listens there.

        """
        sock = unix.connect(self._path, self._uid)
        try:
            _transport, link = await self._loop.create_unix_connection(lambda: Link(self._loop, self._lost), sock=sock)
        except BaseException:
            sock.close()
            raise
        self._busy += 1
        return link

    def give(self, link: Link, *, clean: bool) -> None:
        """Take a connection back after its request; `clean`: nothing of it is left in either direction."""
        self._busy -= 1
        if not clean or link.lost or link.frames or self._closed or len(self._idle) >= MAX_IDLE:
            link.abort()
        else:
            link.rest()
            self._idle.append(link)

    def trim(self) -> None:
        """Close the connections that have not been used since the last time."""
        idle, self._idle = self._idle, []
        for link in idle:
            if link.used:
                link.used = False
                self._idle.append(link)
            else:
                link.abort()

    def close(self) -> None:
        """Close what is idle; what is busy is closed when it comes back."""
        self._closed = True
        idle, self._idle = self._idle, []
        for link in idle:
            link.abort()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def _lost(self, link: Link) -> None:
        with contextlib.suppress(ValueError):  # busy, or closed by ourselves
            self._idle.remove(link)
