"""The queue of changes: one at a time for the whole service, in the order in which they were asked for.

A reload that has to wait for what still drains lets the others pass. Two that wait are one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from supervisor.core import events
from supervisor.core.changes import Change, Recycle, Reload, Replace, Scale
from supervisor.core.effects import Effect, Log, Tell
from supervisor.core.seat import Seat
from supervisor.core.worker_state import State

if TYPE_CHECKING:
    from supervisor.core.server import Server

SAME_ORDER_SECONDS = 1.0  # one SIGHUP that reaches guardian and supervisor alike, as for a stop
RECYCLE_PAUSE_SECONDS = 60.0  # after one that failed


class Changing:
    """Changes under way and to come, of all servers."""

    def __init__(self, servers: Mapping[str, Server]) -> None:
        self._servers = servers
        self._queue: deque[Change] = deque()
        self._current: Change | None = None
        self._last_signal: tuple[float, bool] | None = None
        self._recycle_at = 0.0

    def __repr__(self) -> str:
        return f"<Changing {self._current and self._current.what}, {len(self._queue)} wait>"

    @property
    def reloading(self) -> bool:
        """Whether a reload is under way, or waits for its turn."""
        return any(isinstance(change, Reload) for change in (self._current, *self._queue))

    def refuse(self, event: events.ChangeEvent) -> list[Effect]:
        """It is too late to change anything."""
        text = "the service stops"
        said = [Tell(event.ticket, "refused", text)] if event.ticket else []
        return [Log("info", f"{event.origin} is ignored: {text}"), *said]

    def ask(self, event: events.ChangeEvent, now: float) -> list[Effect]:
        """Something is wanted; `go_on` begins it."""
        match event:
            case events.ReloadAsked():
                self._ask_reload(event, now)
            case events.ScaleAsked(server=server):
                names = self._servers if server is None else [server]
                for name in names:
                    self._queue.append(Scale(event.origin, event.ticket, name, event.workers, event.step))
            case events.DrainAsked():
                self._queue.append(Replace(event.origin, event.ticket, event.server, event.index))
        return []

    def recycle(self, seat: Seat, reason: str, now: float) -> None:
        """A worker is to be replaced when nothing else changes and nothing drains in its server."""
        busy = self._current is not None or self._queue or len(self._servers[seat.server].leaving)
        if not busy and now >= self._recycle_at and seat.seated and seat.state is State.READY:
            self._queue.append(Recycle(reason, 0, seat.server, seat.index))

    def config(self, event: events.ConfigEvent) -> list[Effect]:
        """The config was read, or cannot be had."""
        if not isinstance(self._current, Reload) or self._current.over:
            return []
        if isinstance(event, events.ConfigRefused):
            return self._current.refused(event.reason)
        return self._current.read(event.plans, self._servers)

    def go_on(self, now: float) -> list[Effect]:
        """Begin what can begin, and go on with it."""
        effects: list[Effect] = []
        while True:
            if self._current is None:
                self._current = self._next(effects, now)
                if self._current is None:
                    break
                effects += [Tell(ticket, "started", self._current.what) for ticket in self._current.tickets]
                effects += self._current.begin(self._servers)
            while not self._current.over and (further := self._current.advance(self._servers, now)):
                effects += further
            if not self._current.over:
                break
            if isinstance(self._current, Recycle) and self._current.failed:
                self._recycle_at = now + RECYCLE_PAUSE_SECONDS
            self._current = None
        return effects + self._tell_waiting()

    def end(self, reason: str) -> list[Effect]:
        """Nothing is changed any more."""
        dropped = [*([] if self._current is None else [self._current]), *self._queue]
        self._current = None
        self._queue.clear()
        return [effect for change in dropped if not change.over for effect in change.end(reason, failed=True)]

    def _ask_reload(self, event: events.ReloadAsked, now: float) -> None:
        if event.forwarded is not None:
            last, self._last_signal = self._last_signal, (now, event.forwarded)
            if last is not None and last[1] != event.forwarded and now - last[0] < SAME_ORDER_SECONDS:
                return
        waiting = next((change for change in self._queue if isinstance(change, Reload)), None)
        if waiting is None:
            self._queue.append(Reload(event.origin, event.ticket, force=event.force))
            return
        waiting.force = waiting.force or event.force
        waiting.queued = False
        waiting.tickets += [event.ticket] if event.ticket else []

    def _next(self, effects: list[Effect], now: float) -> Change | None:
        for change in list(self._queue):
            if change.waits_for(self._servers) is None:
                self._queue.remove(change)
                return change
            if isinstance(change, Reload) and change.force:
                for server in self._servers.values():
                    effects += server.leaving.cut("a reload with --force does not wait for it", now)
        return None

    def _tell_waiting(self) -> list[Effect]:
        effects: list[Effect] = []
        for change in self._queue:
            if not change.queued:
                change.queued = True
                why = (
                    change.waits_for(self._servers) or f"a {self._current.what if self._current else 'change'} goes on"
                )
                effects.append(Log("info", f"{change.what} is queued: {why}"))
                effects += [Tell(ticket, "queued", why) for ticket in change.tickets]
        return effects
