"""A request's body that can be used for more than one try."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from io import BytesIO
from types import CoroutineType
from typing import Any

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]

DISCONNECT: Message = {"type": "http.disconnect"}


class ClientLeft(Exception):
    """The client went away before its body was complete."""


def received_at_once(receive: Receive) -> Message | None:
    """The next message of an ASGI receive, if it is there; None: it would wait, and has been put away.

    Stepped by hand: ASGI has no other way to ask, and a task would find out one turn of the loop later.
    """
    steps = receive().__await__()
    try:
        next(steps)
    except StopIteration as done:
        message: Message = done.value
        return message
    steps.close()
    return None


class BodyReplay:
    """Wraps an ASGI receive: what has been read stays and is read again, until `drop`.

    It is an ASGI receive itself, for a request that runs here after all: first what is kept, then what comes.
    One reader at a time.
    """

    __slots__ = ("_kept", "_left", "_receive", "_started", "_untouched", "_whole")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: list[bytes] = []
        self._untouched = True  # nothing has been asked for
        self._whole = False  # the last chunk has been read
        self._left = False  # http.disconnect has been read
        self._started: _Started | None = None  # a read that `ready` began and that waits

    def __repr__(self) -> str:
        size = sum(map(len, self._kept))
        return f"<BodyReplay kept={size} whole={self._whole} left={self._left}>"

    @property
    def complete(self) -> bool:
        """The last chunk has been read."""
        return self._whole

    @property
    def left(self) -> bool:
        """The client has gone away."""
        return self._left

    async def __call__(self) -> Message:
        """The next message, as of an ASGI receive; what is kept is given away and forgotten."""
        if self._kept:
            data = self._kept.pop(0)
            return {"type": "http.request", "body": data, "more_body": bool(self._kept) or not self._whole}
        if self._left:
            return DISCONNECT.copy()
        return await self._read()

    async def whole(self) -> bytes:
        """The whole body. It is kept as the one object that is returned here.

        At no time is there a second copy: chunks are written into one that grows in place, and BytesIO gives its own
        buffer away. A list of chunks and their join would be two.

        Raises:
            ClientLeft: the client went away before the end.

        """
        kept = self._kept
        growing: BytesIO | None = None
        while not self._whole:
            if self._left:
                raise ClientLeft
            message = await self._read()
            if message["type"] != "http.request":
                continue
            if growing is None and kept:
                growing = BytesIO()
                growing.writelines(kept)
                kept.clear()
            if growing is None:
                kept.append(message.get("body", b""))
            else:
                growing.write(message.get("body", b""))
        if growing is not None:
            kept.append(growing.getvalue())
        elif len(kept) != 1:
            kept[:] = [b"".join(kept)]
        return kept[0]

    def ready(self, limit: int) -> bytes | None:
        """The whole body, if it has been read or is there already, and has no more than `limit` bytes; it stays kept.

        Most bodies are there, right behind their head: nothing is waited for.
        """
        if self._untouched:
            self._untouched = False
            receiving = self._receive()
            steps = receiving if type(receiving) is CoroutineType else receiving.__await__()
            try:
                waits_for = steps.send(None)
            except StopIteration as done:
                message = done.value
                if message["type"] == "http.disconnect":
                    self._left = True
                    return None
                data: bytes = message.get("body", b"")
                self._kept.append(data)
                if message.get("more_body", False):
                    return None
                self._whole = True
                return data if len(data) <= limit else None
            self._started = _Started(steps, waits_for)
            return None
        if not self._whole:
            return None
        kept = self._kept
        data = kept[0] if len(kept) == 1 else b"".join(kept)
        return data if len(data) <= limit else None

    def client_left(self) -> bool:
        """Whether the client has gone away, as far as the server knows; asked of a body that is whole."""
        if self._whole and not self._left and self._started is None:
            message = received_at_once(self._receive)
            if message is not None:
                self._note(message)
        return self._left

    def drop(self) -> None:
        """Forget what is kept: it has arrived where it was sent."""
        self._kept.clear()

    async def disconnected(self) -> None:
        """Return when the client has gone away; for a body that has been read to its end."""
        while not self._left:
            await self._read()

    async def _read(self) -> Message:
        self._untouched = False
        started, self._started = self._started, None
        return self._note(await (started or self._receive()))

    def _note(self, message: Message) -> Message:
        if message["type"] == "http.disconnect":
            self._left = True
        elif not message.get("more_body", False):
            self._whole = True
        return message


class _Started:
    """A coroutine after its first step: awaiting it goes on where it stopped.

    `receive` cannot be asked whether it would wait. A task would find out one turn of the loop later, for each
    request; stepping it by hand tells at once. What the step yields is what a task would have been given: it is
    passed on to the task that awaits this object.
    """

    __slots__ = ("_steps", "_waits_for")

    def __init__(self, steps: Coroutine[Any, Any, Any] | Generator[Any, Any, Any], waits_for: Any) -> None:
        self._steps = steps
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        waits_for = self._waits_for
        while True:
            error: BaseException | None = None
            value = None
            try:
                value = yield waits_for
            except GeneratorExit:
                self._steps.close()
                raise
            except BaseException as thrown:
                error = thrown
            try:
                waits_for = self._steps.send(value) if error is None else self._steps.throw(error)
            except StopIteration as done:
                return done.value
