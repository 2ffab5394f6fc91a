"""One timer for many things that are usually over before it rings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Later(Generic[T]):
    """Calls `act(item)` for each item that is still here after one to two periods of `seconds`.

    A timer of its own for each request costs more than the rest of its book-keeping, and nearly every request ends
    before it would ring. Here a request costs two operations on sets.
    """

    __slots__ = ("_act", "_loop", "_old", "_seconds", "_timer", "_young")

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, act: Callable[[T], None]) -> None:
        self._loop = loop
        self._seconds = seconds
        self._act = act
        self._young: set[T] = set()
        self._old: set[T] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def add(self, item: T) -> None:
        """Act on `item` in one to two periods."""
        self._young.add(item)
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._tick)

    def discard(self, item: T) -> None:
        """Do not, if it has not happened yet."""
        self._young.discard(item)
        self._old.discard(item)

    def close(self) -> None:
        """Forget all items and stop."""
        self._young.clear()
        self._old.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        due, self._old, self._young = self._old, self._young, set()
        again = bool(self._old)
        self._timer = self._loop.call_later(self._seconds, self._tick) if again else None
        for item in due:
            self._act(item)
