"""What an app may say about its session's claim itself: `scope["extensions"]["gym_supervise"]`.

The presets know when a session starts and ends from its routes. An app that knows better says so, from its own event
loop; nothing is awaited. What it says during a request takes effect when that is over, after whatever the request's
route means, and the last word counts. It may keep the object and say something later, too: that takes effect at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING

from supervisor.routing.sessions import Owned

if TYPE_CHECKING:
    from supervisor.routing.claims import Claims

NAME = "gym_supervise"


class Word(Enum):
    """What an app can say."""

    HOLD = auto()
    RELEASE = auto()
    CLOSE = auto()


class SessionExtension:
    """The claim of a request's session, in the scope of each http and WebSocket request of a server with sessions.

    Example:
        extension = request.scope.get("extensions", {}).get("gym_supervise")
        if extension is not None:
            extension.hold()

    """

    __slots__ = ("_claims", "_on_end", "_over", "_own", "_word")

    def __init__(self, claims: Claims, own: Owned | None) -> None:
        self._claims = claims
        self._own = own
        self._word: Word | None = None
        self._on_end: tuple[Callable[[], object], ...] = ()
        self._over = False

    def __repr__(self) -> str:
        return f"<SessionExtension {self._own!r}>"

    @property
    def session(self) -> str | None:
        """The session's id; None while the request has none, such as before an app has logged its client in."""
        return None if self._own is None else self._own.session

    def hold(self) -> None:
        """The session is open: its claim is kept until it is released or closed, or its worker exits."""
        self._say(Word.HOLD)

    def release(self) -> None:
        """The session is nothing any more: its claim ends with the last request in flight, without a window."""
        self._say(Word.RELEASE)

    def close(self) -> None:
        """The session has ended: its claim is kept for the window, in which a late typed start of it is refused."""
        self._say(Word.CLOSE)

    def on_end(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the session's claim ends: from then on another worker may start the id anew.

        It is called in the event loop and must not block; not at all when the worker exits, and at once when the claim
        has ended already. What it raises is logged. One that is given again is called once.
        """
        own = self._own
        if own is None and not self._over:
            self._on_end = (*self._on_end, callback)
        elif own is None or self._claims.book.get(own.session) is not own:
            callback()
        elif callback not in own.on_end:
            own.on_end = (*own.on_end, callback)

    def finish(self, own: Owned | None, now: float) -> bool:
        """The request is over, and `own` is its session now: what was said takes effect. For the router.

        Returns whether it changed the session's state.
        """
        self._over = True
        self._own = own
        if own is None:
            return False
        if self._on_end:
            own.on_end = (*own.on_end, *self._on_end)
        if self._word is None:
            return False
        self._apply(own, self._word, now)
        return True

    def _say(self, word: Word) -> None:
        if not self._over:
            self._word = word
            return
        own, claims = self._own, self._claims
        if own is None or claims.book.get(own.session) is not own:
            return
        now = time.monotonic()
        self._apply(own, word, now)
        claims.book.enter(own)
        if claims.book.leave(own, now):
            claims.give_back(own)
        claims.publish()

    def _apply(self, own: Owned, word: Word, now: float) -> None:
        book = self._claims.book
        if word is Word.HOLD:
            book.hold(own, now)
        elif word is Word.RELEASE:
            book.release(own, now)
        else:
            book.close(own, now)
