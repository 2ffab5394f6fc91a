"""Workers that have given their place up: they take no new session, serve those that they have, and end.

    READY      Drain      DRAINING until its last session has ended, or drain_seconds are over
    DRAINING   Finish     STOPPING, for at most graceful_seconds, then it is killed
    BOOTING    Finish and SIGTERM: in the middle of an import nobody reads a link

Nobody follows them: whoever shall is in their place already, or nobody shall.
"""

from __future__ import annotations

from collections.abc import Iterator

from supervisor.core import events
from supervisor.core.effects import Effect, Kill, Send, Terminate
from supervisor.core.messages import Drain, Finish
from supervisor.core.plan import ServerPlan
from supervisor.core.seat import Seat
from supervisor.core.worker_state import State, Step


class Leaving:
    """Those of one server. Times are monotonic seconds; `plan` is in force for whoever comes next."""

    def __init__(self, plan: ServerPlan) -> None:
        self.plan = plan
        self._seats: list[Seat] = []

    def __iter__(self) -> Iterator[Seat]:
        return iter(list(self._seats))

    def __len__(self) -> int:
        return len(self._seats)

    def add(self, seat: Seat, reason: str, now: float) -> list[Effect]:
        """A worker gives its place up, whatever it is just doing."""
        seat.leaving, seat.seated = True, False
        effects: list[Effect] = []
        match seat.state:
            case State.BACKOFF:
                return seat.move(Step.CANCEL)
            case State.EMPTY | State.FAILED:
                return []
            case State.BOOTING:
                effects += end_boot(seat, self.plan.graceful_seconds)
                seat.due = now + self.plan.graceful_seconds
            case State.READY:
                effects += [*seat.move(Step.DRAIN), Send(seat.worker, Drain())]
                seat.due = now + self.plan.drain_seconds
                text = (
                    f"worker {seat.index} drains, pid {seat.pid}, for at most {self.plan.drain_seconds:g} s: {reason}"
                )
                effects.append(seat.log("info", text))
            case _:
                pass  # STARTING: told when it is there; STOPPING: on its way already
        self._seats.append(seat)
        return effects

    def spawned(self, seat: Seat, now: float) -> list[Effect]:
        """A process has come for a place that is no more."""
        seat.due = now + self.plan.graceful_seconds
        return end_boot(seat, self.plan.graceful_seconds)

    def drained(self, seat: Seat, now: float) -> list[Effect]:
        """Its last session has ended."""
        return [seat.log("info", f"worker {seat.index} is drained, pid {seat.pid}"), *self._finish(seat, now)]

    def cut(self, reason: str, now: float) -> list[Effect]:
        """End all that drain, with the sessions that they still have."""
        effects: list[Effect] = []
        for seat in self:
            if seat.state is State.DRAINING:
                effects.append(seat.log("warning", f"worker {seat.index} ends, pid {seat.pid}: {reason}"))
                effects += self._finish(seat, now)
        return effects

    def tick(self, seat: Seat, now: float) -> list[Effect]:
        """Its time is up."""
        if seat.state is State.DRAINING:
            text = f"worker {seat.index} ends, pid {seat.pid}: not drained within drain_seconds"
            return [seat.log("warning", f"{text} ({self.plan.drain_seconds:g} s)"), *self._finish(seat, now)]
        return kill(seat, f"did not end within graceful_seconds ({self.plan.graceful_seconds:g} s)")

    def died(self, seat: Seat, event: events.WorkerDied) -> list[Effect]:
        """It is gone. What it was cut off from it has said itself, if it could."""
        expected = seat.finishing and event.status == 0
        orderly = expected or (event.status == 0 and not event.sessions) or seat.ready_at is None
        effects = seat.move(Step.DIED)
        self._seats.remove(seat)
        lost = f"; it had {event.sessions} open sessions, which are gone" if event.sessions and not expected else ""
        how = seat.condemned or event.how
        text = f"worker {seat.index}, which had given its place up, is gone, pid {seat.pid}: {how}{lost}"
        return [*effects, seat.log("info" if orderly else "warning", text)]

    def forget(self, seat: Seat) -> None:
        """It never came to be."""
        if seat in self._seats:
            self._seats.remove(seat)

    def _finish(self, seat: Seat, now: float) -> list[Effect]:
        seconds = self.plan.graceful_seconds
        effects = seat.move(Step.STOP)
        seat.due = now + seconds
        return [*effects, finish(seat, seconds)]


def finish(seat: Seat, seconds: float) -> Send:
    """Tell a worker to shut down."""
    seat.finishing = True
    return Send(seat.worker, Finish(seconds))


def end_boot(seat: Seat, seconds: float) -> list[Effect]:
    """In an import it reads no link and SIGTERM ends it; later the signal and the message mean the same."""
    return [*seat.move(Step.STOP), finish(seat, seconds), Terminate(seat.worker)]


def kill(seat: Seat, reason: str) -> list[Effect]:
    """Kill a worker, once."""
    seat.due = None
    if seat.condemned is not None:
        return []
    seat.condemned = f"killed, since it {reason}"
    return [
        seat.log("error", f"killing worker {seat.index}, pid {seat.pid}: it {reason}"),
        Kill(seat.worker, reason),
    ]
