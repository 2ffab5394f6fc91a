"""Records of closed sessions, for apps that answer a repeated close or a late start themselves.

A close may come twice, since its first reply can get lost, and a start may come after its close. An app that wants to
give the same receipt again, or to refuse such a start in words of its own, keeps a record of each closed session. Under
gym-supervise a record goes with the session's claim: from then on the id may be claimed by another worker, which knows
nothing of the record, and a client must not be told two different things. On a plain server it goes after the window.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

EXTENSION = "gym_supervise"
WINDOW_SECONDS = 300.0

_T = TypeVar("_T")


class ClaimExtension(Protocol):
    """What is needed of `scope["extensions"]["gym_supervise"]`."""

    @property
    def session(self) -> str | None:
        """The id of the request's session."""

    def close(self) -> None:
        """The session has ended."""

    def on_end(self, callback: Callable[[], object], /) -> None:
        """Call `callback` when the session's claim ends."""


class ClosedSessionRecords(Generic[_T]):
    """The records of one app in one process, by session id. All methods belong into the app's event loop.

    Args:
        window_seconds: how long a record is kept where there is no claim that it could go with; as long as the config's
            `session_close_retry_window_seconds`.
        clock: monotonic seconds.

    Example:
        closed: ClosedSessionRecords[dict[str, str]] = ClosedSessionRecords()

        async def close_session(request: Request) -> Response:
            session = request.session["session_id"]
            receipt = closed.get(session)
            if receipt is None:
                receipt = closed.close(session, end_it(session), request.scope)
            return JSONResponse(receipt)

    """

    def __init__(self, *, window_seconds: float = WINDOW_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._window_seconds = window_seconds
        self._clock = clock
        self._records: dict[str, _T] = {}
        self._until: dict[str, float] = {}  # of records without a claim, in the order of their ends
        self._claimed: set[str] = set()  # whose claim's end will be told

    def __repr__(self) -> str:
        return f"<ClosedSessionRecords {len(self._records)}>"

    def __len__(self) -> int:
        self._expire()
        return len(self._records)

    def __contains__(self, session: object) -> bool:
        self._expire()
        return session in self._records

    def get(self, session: str) -> _T | None:
        """The record of a closed session, or None: it is not closed, or was so long ago that it may start anew."""
        self._expire()
        return self._records.get(session)

    def close(self, session: str, record: _T, scope: Mapping[str, Any]) -> _T:
        """Note that a session is closed, and end its claim with the window where gym-supervise holds one.

        `scope` is that of the request that closes it. The first close counts: a record that is there already stays,
        and is what is returned.
        """
        self._expire()
        if session in self._records:
            return self._records[session]
        self._records[session] = record
        claim = claim_of(scope)
        if claim is None or claim.session != session:
            self._until[session] = self._clock() + self._window_seconds
            return record
        claim.close()
        if session not in self._claimed:
            self._claimed.add(session)
            claim.on_end(partial(self._claim_ended, session))
        return record

    def forget(self, session: str) -> None:
        """The session is open again: the app has let it start anew."""
        self._records.pop(session, None)
        self._until.pop(session, None)

    def _claim_ended(self, session: str) -> None:
        self._claimed.discard(session)
        self.forget(session)

    def _expire(self) -> None:
        now = self._clock()
        while self._until:
            session = next(iter(self._until))
            if self._until[session] > now:
                break
            self.forget(session)


def claim_of(scope: Mapping[str, Any]) -> ClaimExtension | None:
    """The claim of a request's session; None on a server that gym-supervise does not run."""
    found = (scope.get("extensions") or {}).get(EXTENSION)
    return cast("ClaimExtension | None", found)
