"""What can happen to the service. The loop turns every wake-up into these; `Fleet.handle` answers with effects.

A reload, a drain, a change of scale or a stalled worker will be further classes here: nothing but the loop makes events
and nothing but the fleet reads them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Worker:
    """Names one worker for ever: incarnations are never used twice within a server."""

    server: str
    index: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Started:
    """The service is set up: listeners are open, segments exist, no worker runs yet."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A timer is due, or may be: `Fleet.next_timer` said when."""


@dataclass(frozen=True, slots=True)
class Spawned:
    """A `Spawn` has been performed."""

    worker: Worker
    pid: int


@dataclass(frozen=True, slots=True)
class SpawnFailed:
    """A `Spawn` could not be performed: no process, no descriptor, no free row."""

    server: str
    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """It serves: lifespan start-up done, private socket listening, public connections accepted."""

    worker: Worker


@dataclass(frozen=True, slots=True)
class WorkerBootFailed:
    """Its app cannot be had; its exit follows."""

    worker: Worker
    traceback: str


@dataclass(frozen=True, slots=True)
class WorkerQuiet:
    """It accepts nothing more, and no public connection of its own is left."""

    worker: Worker


@dataclass(frozen=True, slots=True)
class WorkerDrained:
    """It accepts nothing more, and its last session has ended."""

    worker: Worker


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """It has exited. Its ring row is dead already, its process is still a zombie.

    status     the exit status, or the signal's number, negative
    how        the same in words: "exit status 3", "killed by SIGKILL"
    sessions   open sessions that it had at the end
    """

    worker: Worker
    status: int
    how: str
    sessions: int = 0


@dataclass(frozen=True, slots=True)
class WorkerReaped:
    """Its process group is killed and nothing of it is left."""

    worker: Worker


@dataclass(frozen=True, slots=True)
class StripeHeld:
    """A live worker has been inside a stripe under repair for too long: nobody gets the stripe until it is gone."""

    worker: Worker
    seconds: float


@dataclass(frozen=True, slots=True)
class TableBroken:
    """A server's table cannot be vouched for any more."""

    server: str
    reason: str


@dataclass(frozen=True, slots=True)
class StopSignal:
    """SIGTERM or SIGINT.

    forwarded   it came from the guardian, not straight from whoever stops the service
    """

    name: str
    forwarded: bool = False


@dataclass(frozen=True, slots=True)
class QuitSignal:
    """SIGQUIT: end at once."""


@dataclass(frozen=True, slots=True)
class StopCommand:
    """`gym-supervise stop`, over the control socket."""


@dataclass(frozen=True, slots=True)
class UnavailableAsked:
    """An operator asked for something that this version does not have.

    origin   what asked: "SIGHUP"
    what     what it would have been: "reload"
    """

    origin: str
    what: str


@dataclass(frozen=True, slots=True)
class GuardianDied:
    """Nobody is left above the supervisor to sweep up after it."""


WorkerEvent = WorkerReady | WorkerBootFailed | WorkerQuiet | WorkerDrained | WorkerDied | WorkerReaped | StripeHeld
OperatorEvent = StopSignal | QuitSignal | StopCommand | UnavailableAsked | GuardianDied
Event = Started | Tick | Spawned | SpawnFailed | TableBroken | WorkerEvent | OperatorEvent
