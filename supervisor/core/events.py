"""What can happen to the service. The loop turns every wake-up into these; `Fleet.handle` answers with effects.

Nothing but the loop makes events and nothing but the fleet reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from supervisor.core.plan import ServerPlan


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
    """A `Spawn` has been performed. `key` is the seat's."""

    worker: Worker
    pid: int
    key: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class SpawnFailed:
    """A `Spawn` could not be performed: no process, no descriptor, no free row. `key` is the seat's."""

    server: str
    index: int
    reason: str
    key: int = field(default=0, compare=False)


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
class WorkerShared:
    """Its sessions are claimed in the table, so that it may have siblings; or, with an `error`, they are not."""

    worker: Worker
    error: str = ""


@dataclass(frozen=True, slots=True)
class WorkerCut:
    """It was told to end before its sessions had ended: `count` are lost; prefixes of some of them."""

    worker: Worker
    count: int
    sessions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerStalled:
    """Its event loop has not beaten for `seconds`, in which the supervisor was always on time.

    sessions   that it has open
    stacks     of its threads, as far as they could be had
    """

    worker: Worker
    seconds: float
    sessions: int = 0
    stacks: str = ""


@dataclass(frozen=True, slots=True)
class RecycleDue:
    """A worker has served as much, or grown as large, as the config allows; said again while it is."""

    worker: Worker
    reason: str


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
class ReloadAsked:
    """Read config and code anew.

    origin      who asks: "SIGHUP", "the reload command"
    ticket      for the answer; 0: nobody waits for one
    force       what still drains is cut, so that the reload need not wait for it
    forwarded   it is a signal that came from the guardian; None: it is no signal
    """

    origin: str
    ticket: int = 0
    force: bool = False
    forwarded: bool | None = None


@dataclass(frozen=True, slots=True)
class ConfigRead:
    """A `ReadConfig` has been performed: what the candidate asks for."""

    plans: Mapping[str, ServerPlan]


@dataclass(frozen=True, slots=True)
class ConfigRefused:
    """A `ReadConfig` found something that cannot be, or cannot be changed while the service runs."""

    reason: str


@dataclass(frozen=True, slots=True)
class ScaleAsked:
    """Another number of workers: `workers`, or `step` more than there are, in a server or in all (None)."""

    origin: str
    server: str | None = None
    workers: int | None = None
    step: int = 0
    ticket: int = 0


@dataclass(frozen=True, slots=True)
class DrainAsked:
    """Replace one worker, and let its sessions end."""

    origin: str
    server: str
    index: int
    ticket: int = 0


@dataclass(frozen=True, slots=True)
class ReopenAsked:
    """Open log files anew. The loop's own affair: it decides nothing about a worker.

    origin   what asked: "SIGUSR1"
    """

    origin: str


@dataclass(frozen=True, slots=True)
class GuardianDied:
    """Nobody is left above the supervisor to sweep up after it."""


WorkerEvent = (
    WorkerReady
    | WorkerBootFailed
    | WorkerQuiet
    | WorkerDrained
    | WorkerShared
    | WorkerCut
    | WorkerStalled
    | RecycleDue
    | WorkerDied
    | WorkerReaped
    | StripeHeld
)
ChangeEvent = ReloadAsked | ScaleAsked | DrainAsked
ConfigEvent = ConfigRead | ConfigRefused
OperatorEvent = StopSignal | QuitSignal | StopCommand | ChangeEvent | GuardianDied
Event = Started | Tick | Spawned | SpawnFailed | TableBroken | ConfigEvent | WorkerEvent | OperatorEvent
