"""How a worker's process enters a stripe's critical section, and leaves it whatever happens.

Entering writes the stripe into the worker's intent, reads the repair flag, and tries the semaphore once. It never
blocks on a semaphore: a waiter that is woken and killed before it takes the token has used up the wake-up of the next
one.

Threads of one process come in one at a time, through `_inside`: `dict.setdefault` is a try-lock whose outcome can be
told after the fact, even when a signal handler's exception strikes between the call and the next bytecode. A
`threading.Lock` cannot say whether it was taken, and would dead-lock a signal handler or a finalizer that comes back
to the table.

Whoever is thrown out (an exception that is not the table's own) does not know whether it holds the token. It marks its
intent abandoned and takes no stripe any more until the supervisor has looked at the semaphore and cleared the mark.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Sequence
from threading import get_ident
from types import CodeType
from typing import TYPE_CHECKING, ClassVar

import posix_ipc

from shmclaims.claims import StripeBusy
from shmclaims.layout import ABANDONED, Row, flag_word, row_word

if TYPE_CHECKING:
    from shmclaims.stripes import Stripes

_INTENT = Row.INTENT.value
_INSIDE = 0  # the one key of Entrance._inside


class Entry:
    """One stay in a critical section: whose it is, and the slot that it is about to publish."""

    __slots__ = ("control", "slot", "thread")

    def __init__(self) -> None:
        self.thread = get_ident()
        self.slot = 0
        self.control = 0


class Entrance:
    """The critical sections of one worker's process."""

    critical: ClassVar[set[CodeType]] = set()  # code of the functions that hold an Entry while they run
    _all: ClassVar[weakref.WeakSet[Entrance]] = weakref.WeakSet()

    def __init__(self, words: memoryview, stripes: Stripes) -> None:
        self._words = words
        self._stripes = stripes
        self._intent = 0
        self._flags: Sequence[int] = [flag_word(stripe) for stripe in range(stripes.count)]
        self._inside: dict[int, Entry] = {}
        self._all.add(self)

    def bind(self, incarnation: int) -> None:
        """This process is that worker: its row's intent is this process's to write."""
        self._intent = row_word(incarnation) + _INTENT
        self._inside.clear()

    def unbind(self) -> None:
        self._intent = 0
        self._inside.clear()

    @property
    def bound(self) -> bool:
        return self._intent != 0

    def enter(self, stripe: int, entry: Entry) -> None:
        """Take the stripe, tried once. Raises StripeBusy, with nothing held and the intent 0 (or abandoned)."""
        if not self._intent:
            raise RuntimeError("this process is no worker: found no incarnation bound, expected bind() after the fork")
        other = self._inside.setdefault(_INSIDE, entry)
        if other is not entry:
            self._drop_leftover(other)
            raise StripeBusy("another thread of this process is inside")
        words, intent = self._words, self._intent
        if words[intent]:
            words[intent] |= ABANDONED
            del self._inside[_INSIDE]
            raise StripeBusy("this worker was thrown out of a stripe, and the supervisor has not repaired it yet")
        words[intent] = stripe + 1
        if not words[self._flags[stripe]]:
            try:
                self._stripes.semaphores[stripe].acquire(0)
            except posix_ipc.BusyError:
                pass
            else:
                return
        words[intent] = 0
        del self._inside[_INSIDE]
        raise StripeBusy(f"stripe {stripe} is held or in repair")

    def leave(self, stripe: int) -> None:
        """Give the stripe back: first the token, then the intent, so that a token is never lost in silence."""
        self._stripes.semaphores[stripe].release()
        self._words[self._intent] = 0
        del self._inside[_INSIDE]

    def thrown_out(self, entry: Entry) -> None:
        """An exception left the critical section at an unknown point; nothing to do when it was not inside.

        What it was about to publish is taken back: the caller never got the handle. Only its owner changes a live slot,
        so that needs no lock.
        """
        if self._inside.get(_INSIDE) is not entry:
            return
        words = self._words
        if words[self._intent]:
            words[self._intent] |= ABANDONED
        if entry.control and words[entry.slot] == entry.control:
            words[entry.slot] = 0
        del self._inside[_INSIDE]

    def _drop_leftover(self, other: Entry) -> None:
        """A second exception can strike while the first is being handled: an entry that no frame runs any more is over.

        The next `enter` then finds the intent set, and marks it abandoned.
        """
        running = -1 if other.thread == get_ident() else 0  # this very call does not count
        frame = sys._current_frames().get(other.thread)
        while frame is not None:
            running += frame.f_code in self.critical
            frame = frame.f_back
        if running > 0:
            return
        if self._inside.get(_INSIDE) is other:
            del self._inside[_INSIDE]

    @classmethod
    def _after_fork(cls) -> None:
        for entrance in list(cls._all):
            entrance.unbind()  # a worker's own child is not the worker


os.register_at_fork(after_in_child=Entrance._after_fork)
