"""Whether the client of a start is still there: before the app runs, and when its reply is complete.

A start that is run after its client has left would undo what the client has done since: it fails without running.
Servers drop what an app sends to a client that has left, and say nothing. A start whose client never got the reply has
failed as well: nobody knows the id that it gave out.
"""

from __future__ import annotations

import asyncio
from typing import Any

from supervisor.relay.body import BodyReplay, received_at_once
from supervisor.routing.request import Receive, Request, Send

MOST_STEPS = 64  # messages taken of a body that the app has not read
TURNS = 3  # of the event loop, after which the end of a connection that the kernel knows of is known here
CLIENT_LEFT = 499  # what nginx calls it; in access lines alone, nobody gets the reply


async def note_whether_left(request: Request) -> None:
    """Note on a start that has not run yet whether its client has gone away."""
    if not request.left:
        for _ in range(TURNS):
            await asyncio.sleep(0)
        request.left = request.body.client_left()


async def answer_nobody(send: Send) -> None:
    """The reply of a start that was not run, since its client has gone away."""
    await send({"type": "http.response.start", "status": CLIENT_LEFT, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def empty_body() -> BodyReplay:
    """What is relayed of it: its owner does not run it either, and nobody is there to be listened to."""
    messages = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        raise AssertionError

    return BodyReplay(receive)


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
            message = received_at_once(self._receive)
            if message is None:
                break
            self._left = message["type"] == "http.disconnect"
            if not self._left:
                self._held.append(message)
        return self._left
