"""`gym-supervise release`: ends one claim on an operator's word, and answers on the control socket what became of it.

A live claim is its owner's to end: it is asked over its link, and says. A gone record is the supervisor's own to
retire, under the stripe. Nothing here waits: a stripe that is busy is tried again, a worker that does not answer is
given up.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from shmclaims import Claim, ClaimState, Handle, Segment, StripeBusy
from supervisor.control import Reply
from supervisor.core.events import Worker
from supervisor.core.messages import Release, Released, ToWorker

logger = logging.getLogger("gym_supervise.supervisor")

DIGEST = re.compile(r"[0-9a-fA-F]{32}")
ANSWER_SECONDS = 5.0
STRIPE_PAUSE_SECONDS = 0.01

Answer = Mapping[str, Any]


class Tables(Protocol):
    """The servers' tables."""

    def names(self) -> Mapping[str, str]:
        """The servers, each with its segment's name."""

    def segment(self, server: str) -> Segment:
        """A server's segment."""

    def retire(self, server: str, handle: Handle) -> bool:
        """Retire a gone record. Raises StripeBusy; False: it is none any more."""


@dataclass(slots=True)
class _Pending:
    """A release that is not answered yet. Times are monotonic seconds; `worker` is who was asked, None: nobody."""

    server: str
    digest: str
    handle: Handle
    claim: Claim
    when_idle: bool
    reply: Reply
    deadline: float
    due: float
    worker: Worker | None = None


class Releases:
    """All releases under way.

    Args:
        tables: the servers' tables.
        send: tells a worker something; False when it cannot be told.

    """

    def __init__(self, tables: Tables, send: Callable[[Worker, ToWorker], bool]) -> None:
        self._tables = tables
        self._send = send
        self._tickets = itertools.count(1)
        self._pending: dict[int, _Pending] = {}

    def ask(self, request: Mapping[str, Any], reply: Reply, now: float) -> Answer | None:
        """Begin a release; the answer at once, or None: it comes through `reply`.

        Args:
            request: `session` (an id, or a digest in hex), `server` or null, `when_idle`.
            reply: for the answer.
            now: monotonic seconds.

        """
        session, server = request.get("session"), request.get("server")
        if not isinstance(session, str) or not session or (server is not None and not isinstance(server, str)):
            return _no("usage", f"session: found {session!r:.40}, expected an id or a digest; server: a name or null")
        if server is not None and server not in self._tables.names():
            return _no("usage", f"server: found {server!r:.40}, expected one of {', '.join(self._tables.names())}")
        found = [one for name in self._tables.names() if server in (None, name) and (one := self._find(name, session))]
        if not found:
            return _no("not_found", "nobody claims it: it has ended, was never claimed, or is another service's")
        if len(found) > 1:
            names = ", ".join(name for name, *_ in found)
            return _no("ambiguous", f"it is claimed on several servers ({names}); say which one with --server")
        name, digest, handle, claim = found[0]
        when_idle = request.get("when_idle") is True
        self._pending[next(self._tickets)] = _Pending(
            name, digest, handle, claim, when_idle, reply, deadline=now + ANSWER_SECONDS, due=now
        )
        self.step(now)
        return None

    def answered(self, worker: Worker, message: Released) -> None:
        """A worker says what became of a release."""
        pending = self._pending.get(message.ticket)
        if pending is None or pending.worker != worker:
            return
        match message.outcome:
            case "released" | "ending":
                self._end(message.ticket, _yes(pending, message.outcome, message.in_flight))
            case "in_flight":
                text = f"{_requests(message.in_flight)} of it in flight on worker {worker.index}; nothing has changed"
                self._end(message.ticket, _no("in_flight", text))
            case "busy":
                self._end(
                    message.ticket, _no("busy", "its stripe of the table is busy; nothing has changed, try again")
                )
            case "unknown":
                self._end(message.ticket, _no("not_found", "its claim has just ended, or is another by now"))

    def lost(self, worker: Worker) -> None:
        """A worker has died: what it was asked for is a gone record now, and retired like one."""
        for pending in self._pending.values():
            if pending.worker == worker:
                pending.worker, pending.due = None, 0.0

    def step(self, now: float) -> None:
        """Do what is due."""
        for ticket, pending in list(self._pending.items()):
            if now >= pending.deadline:
                self._end(ticket, _no("unanswered", _too_late(pending)))
            elif pending.worker is None and now >= pending.due:
                self._try(ticket, pending, now)

    def next_timer(self) -> float | None:
        """When to call `step`, monotonic seconds."""
        return min(
            (one.deadline if one.worker is not None else one.due for one in self._pending.values()), default=None
        )

    # Inside

    def _find(self, server: str, session: str) -> tuple[str, str, Handle, Claim] | None:
        """By id, and if nobody claims that, by digest."""
        table = self._tables.segment(server).table
        try:
            digests = [table.digest(session.encode("utf-8", "surrogateescape"))]
        except UnicodeEncodeError:  # half a character that came from no command line
            return None
        if DIGEST.fullmatch(session):
            digests.append(bytes.fromhex(session))
        for digest in digests:
            if (found := table.find(digest)) is not None:
                return server, digest.hex(), *found
        return None

    def _try(self, ticket: int, pending: _Pending, now: float) -> None:
        claim = pending.claim
        if claim.state is ClaimState.LIVE and self._tables.segment(pending.server).ring.is_live(claim.incarnation):
            worker = Worker(pending.server, claim.index, claim.incarnation)
            handle = pending.handle
            if self._send(worker, Release(ticket, handle.slot, handle.control, handle.stripe, pending.when_idle)):
                pending.worker = worker
            else:
                self._end(ticket, _no("unanswered", f"worker {claim.index} cannot be told: it does not read its link"))
            return
        try:
            retired = self._tables.retire(pending.server, pending.handle)
        except StripeBusy:
            pending.due = now + STRIPE_PAUSE_SECONDS
            return
        if retired:
            self._end(ticket, _yes(pending, "retired"))
        else:
            self._end(ticket, _no("not_found", "its record has just been retired, or replaced by a new claim"))

    def _end(self, ticket: int, answer: Answer) -> None:
        pending = self._pending.pop(ticket)
        name = f"session {pending.claim.prefix}... (digest {pending.digest})"
        if answer["ok"]:
            logger.info("%s: released on request: %s, %s", pending.server, name, answer["detail"])
        else:
            logger.warning("%s: not released, though asked to: %s: %s", pending.server, name, answer["error"])
        pending.reply(answer)


def _yes(pending: _Pending, outcome: str, in_flight: int = 0) -> Answer:
    claim = pending.claim
    if outcome == "retired":
        text = f"the record that dead worker {claim.index} left is retired"
    elif outcome == "released":
        text = f"worker {claim.index} holds it no longer"
    elif in_flight:
        text = f"worker {claim.index} gives it up with the last of {_requests(in_flight)} in flight"
    else:
        text = f"worker {claim.index} gives it up within moments"
    return {
        "ok": True,
        "outcome": outcome,
        "detail": text,
        "server": pending.server,
        "session": claim.prefix or None,
        "digest": pending.digest,
        "worker": claim.index,
        "in_flight": in_flight,
    }


def _no(kind: str, text: str) -> Answer:
    return {"ok": False, "kind": kind, "error": text}


def _too_late(pending: _Pending) -> str:
    seconds = f"{ANSWER_SECONDS:g} s"
    if pending.worker is None:
        return f"its stripe of the table was busy or in repair for {seconds}; nothing has changed, try again"
    index = pending.worker.index
    return f"worker {index} did not answer within {seconds}: its event loop hangs; it does it when it goes on"


def _requests(count: int) -> str:
    return f"{count} request{'' if count == 1 else 's'}"
