"""What an app may say about its session's claim itself: `scope["extensions"]["gym_supervise"]`.

The presets know when a session starts and ends from its routes. An app that knows better says so during a request for
the session, from its own event loop; nothing is awaited, and what it says takes effect when the request is over.
"""

from __future__ import annotations

import time

from supervisor.routing.sessions import Book, Owned

NAME = "gym_supervise"


class SessionExtension:
    """The claim of the request's session. There is none in the scope of a request without a session.

    Example:
        extension = request.scope.get("extensions", {}).get("gym_supervise")
        if extension is not None:
            extension.hold()

    """

    __slots__ = ("_book", "_own")

    def __init__(self, book: Book, own: Owned) -> None:
        self._book = book
        self._own = own

    def __repr__(self) -> str:
        return f"<SessionExtension {self._own!r}>"

    @property
    def session(self) -> str:
        """The session's id."""
        return self._own.session

    def hold(self) -> None:
        """The session is open: its claim is kept until it is released or closed, or its worker exits."""
        self._book.hold(self._own, time.monotonic())

    def release(self) -> None:
        """The session is nothing any more: its claim ends with the last request in flight, without a window."""
        self._book.release(self._own, time.monotonic())

    def close(self) -> None:
        """The session has ended: its claim is kept for the window, in which a late typed start of it is refused."""
        self._book.close(self._own, time.monotonic())
