"""Whether the client of a start is still there when its reply is complete.

Servers drop what an app sends to a client that has left, and say nothing. A start whose client never got the reply has
failed: nobody knows the id that it gave out. ASGI's only way to ask is `receive`, which waits where there is nothing to
say; so it is stepped by hand, and put away when it would wait.
"""

from __future__ import annotations

import asyncio
from typing import Any

from supervisor.relay.body import BodyReplay
from supervisor.routing.request import Receive

MOST_STEPS = 64  # messages taken of a body that the app has not read
TURNS = 3  # of the event loop, after which the end of a connection that the kernel knows of is known here


async def client_left(body: BodyReplay) -> bool:
    """Whether the client of a start has gone away before the app ran. Run after that, it would undo what its client has
    done since: sent it again, and more.
    """
    for _ in range(TURNS):
        await asyncio.sleep(0)
    return body.client_left()


class Listener:
    """An ASGI receive that can be asked whether the client has left."""

    __slots__ = ("_held", "_left", "_receive")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._held: list[dict[str, Any]] = []
        self._left = False

    async def __call__(self) -> dict[str, Any]:
        """The next message."""
        if self._held:
            return self._held.pop(0)
        message = await self._receive()
        self._left = self._left or message["type"] == "http.disconnect"
        return message

    def client_left(self) -> bool:
        """Whether the client has gone away, as far as the server knows. What it has sent stays for the app."""
        for _ in range(MOST_STEPS):
            if self._left:
                break
            steps = self._receive().__await__()
            try:
                next(steps)
            except StopIteration as done:
                self._left = done.value["type"] == "http.disconnect"
                if not self._left:
                    self._held.append(done.value)
            else:
                steps.close()
                break
        return self._left
