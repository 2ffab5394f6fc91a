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
    """The worker of one incarnation.

    Its pidfd says what its row cannot while the supervisor is stopped. It is not that of a reused pid: the supervisor
    ends the row before it gives the pid back, and a row that has ended is never asked about its process.
    """

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
        self._links: set[Link] = set()
        self._idle: list[Link] = []
        self._spare = 0  # so many idle ones were not needed since the last trim
        self._limit = MAX_IDLE
        self._dead = False  # once dead, for ever: requests that still look at it do so when its pidfd is closed
        self._pidfd: int | None = None
        if pid:
            with contextlib.suppress(OSError):  # dead already, or no descriptor left: the row alone tells
                self._pidfd = os.pidfd_open(pid)

    def __repr__(self) -> str:
        state = "dead" if self.dead() else "live"
        return f"<Peer {self._path} {state} idle={len(self._idle)} busy={self.busy}>"

    @property
    def idle(self) -> int:
        """Connections without a request."""
        return len(self._idle)

    @property
    def busy(self) -> int:
        """Connections with one."""
        return len(self._links) - len(self._idle)

    def dead(self) -> bool:
        """Its row says so, or its process has exited: a stopped supervisor may not have seen that yet."""
        if not self._dead:
            self._dead = not self._is_live() or self._exited()
        return self._dead

    def _exited(self) -> bool:
        if self._pidfd is None:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def take(self) -> Link | None:
        """An idle connection, the last one used; None: there is none."""
        idle = self._idle
        if not idle:
            return None
        link = idle.pop()
        link.idle = False
        self._spare = min(self._spare, len(idle))
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
        self._links.add(link)
        return link

    def give(self, link: Link) -> None:
        """Take a connection back whose request and reply have been carried to their ends."""
        if link.lost or link.frames or len(self._idle) >= self._limit:
            link.abort()
            return
        link.idle = True
        if link.reading_paused:  # an owner that closes it must be heard
            link.resume_reading()
        self._idle.append(link)

    def trim(self) -> None:
        """Close the idle connections that were not needed since the last time."""
        for link in self._idle[: self._spare]:
            link.abort()
        del self._idle[: self._spare]
        self._spare = len(self._idle)

    def close(self) -> None:
        """Close what is idle; what is busy is closed when it comes back."""
        self._limit = 0
        for link in self._idle:
            link.abort()
        self._idle.clear()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def _lost(self, link: Link) -> None:
        self._links.discard(link)
        with contextlib.suppress(ValueError):  # busy, or closed by ourselves
            self._idle.remove(link)
