"""Getting a request to its owner: new connections, an owner that cannot be reached, one that has died."""

from __future__ import annotations

import asyncio
import errno
import logging
import random
from typing import TYPE_CHECKING

from supervisor.relay import unix
from supervisor.relay.body import BodyReplay
from supervisor.relay.exchange import BROKEN_OFF, Exchange, Send
from supervisor.relay.link import Link
from supervisor.relay.outcomes import Gone, Outcome, Overloaded, OwnerLost, Unreachable
from supervisor.relay.peer import Peer

if TYPE_CHECKING:
    from supervisor.relay.websocket.acceptor import Conversation

logger = logging.getLogger("gym_supervise.relay")

FIRST_PAUSE_SECONDS = 0.002
LONGEST_PAUSE_SECONDS = 0.1

EXHAUSTED = (errno.EMFILE, errno.ENFILE)


class Attempts:
    """All that is tried for one request.

    opened  the frame that begins it
    whole   it has all of the request's body in it
    placed  it asks the owner to claim a new session
    holds   the client waits for `100 Continue`
    """

    def __init__(
        self,
        peer: Peer,
        opened: bytes,
        body: BodyReplay,
        send: Send,
        *,
        whole: bool,
        placed: bool,
        holds: bool,
        reach_seconds: float,
    ) -> None:
        self._peer = peer
        self._opened = opened
        self._body = body
        self._send = send
        self._whole = whole
        # Nobody waits for the owner's word, so it may have begun to run without it.
        self._unsaid = whole and not placed
        self._holds = holds
        self._reach_seconds = reach_seconds
        self._deadline = 0.0
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._failure = ""
        self._sent = False

    async def run(self, link: Link | None) -> Outcome:
        """Go on with `link`, on which `opened` was sent; None: begin."""
        outcome = None
        if link is not None:
            outcome = await self._exchange(link) or await self._pause()
        while outcome is None:
            outcome = await self._try() or await self._pause()
        return outcome

    def begin(self, link: Link) -> Exchange | Conversation:
        """What comes after `opened` on `link`."""
        return Exchange(link, self._body, self._send, uploaded=self._whole, holds=self._holds)

    async def _try(self) -> Outcome | None:
        link = self._peer.take()
        if link is None:
            try:
                link = await self._peer.connect()
            except unix.ForeignPeer as error:
                logger.error("relay: %s", error)  # noqa: TRY400 (the trace says nothing more)
                return Unreachable(str(error))
            except OSError as error:
                if error.errno in EXHAUSTED:
                    return Overloaded()
                self._failure = f"cannot connect: {error.strerror or error}"
                return None
        link.transport.write(self._opened)
        return await self._exchange(link)

    async def _exchange(self, link: Link) -> Outcome | None:
        self._sent = True
        exchange = self.begin(link)
        try:
            outcome = await exchange.run()
        except BaseException:
            link.abort()
            raise
        if exchange.uploaded:
            self._peer.give(link)
        else:  # the reply did not wait for the end of the body
            link.abort()
        if outcome is None:
            if exchange.taken:
                return await self._lost()
            self._failure = "the connection ended before the owner answered"
        return outcome

    async def _pause(self) -> Outcome | None:
        """The owner was not reached: it is dead, or there is time to try again after this."""
        if self._peer.dead():
            return OwnerLost(started=False) if self._sent and self._unsaid else Gone()
        if self._late():
            return Unreachable(f"{self._failure}, for {self._reach_seconds:g} s, though it lives")
        await self._sleep()
        return None

    async def _lost(self) -> Outcome:
        """The owner had taken the request, and its connection is gone. A death is seen there before it is seen here."""
        while not self._peer.dead():
            if self._late():
                logger.error("relay: %r took a request and closed its connection, but it lives", self._peer)
                return BROKEN_OFF
            await self._sleep()
        return OwnerLost(started=False)

    def _late(self) -> bool:
        now = asyncio.get_running_loop().time()
        if not self._deadline:
            self._deadline = now + self._reach_seconds
        return now >= self._deadline

    async def _sleep(self) -> None:
        await asyncio.sleep(self._pause_seconds * random.uniform(0.5, 1.0))  # noqa: S311 (jitter, no secret)
        self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)
