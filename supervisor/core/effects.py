"""What the fleet wants done. The loop performs effects in their order; what comes of one returns as an event."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from supervisor.core.events import Worker
from supervisor.core.messages import ToWorker
from supervisor.core.worker_state import State

Level = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Spawn:
    """Fork a worker for this seat; answer with Spawned or SpawnFailed.

    key         of the seat, which the answer repeats
    candidate   with the config that was read last, which is not in force yet
    shared      it will have siblings, now or later: its sessions are claimed in the table
    """

    server: str
    index: int
    key: int = field(default=0, compare=False)
    candidate: bool = field(default=False, compare=False)
    shared: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True)
class Send:
    """Tell a worker something over its link; one that does not read is not waited for."""

    worker: Worker
    message: ToWorker


@dataclass(frozen=True, slots=True)
class Terminate:
    """SIGTERM to the worker: it may be in the middle of an import, where it reads no link."""

    worker: Worker


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL to the worker's process alone; what it leaves behind has the usual grace.

    reason   why, for those who ask the row after its death: "was not ready within boot_seconds (120 s)"
    """

    worker: Worker
    reason: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class CloseListeners:
    """Close the supervisor's copies of a server's public sockets: with the workers' ones gone, clients are refused."""

    server: str


@dataclass(frozen=True, slots=True)
class KillAll:
    """SIGKILL to all process groups and all that is left of dead workers, without grace."""


@dataclass(frozen=True, slots=True)
class ShowSeat:
    """Write a seat's state into the segment, for `status`."""

    server: str
    index: int
    state: State
    incarnation: int
    restarts: int


@dataclass(frozen=True, slots=True)
class ShowRow:
    """Write a worker's state into its ring row, for the other workers: only a ready one gets new sessions."""

    worker: Worker
    state: State


@dataclass(frozen=True, slots=True)
class Log:
    """A decision and its reason, in words; server and index when it is about one."""

    level: Level
    text: str
    server: str | None = None
    index: int | None = None


@dataclass(frozen=True, slots=True)
class ReadConfig:
    """Read the config's file again; answer with ConfigRead or ConfigRefused. It is a candidate then."""


@dataclass(frozen=True, slots=True)
class CommitConfig:
    """The candidate is in force from here on."""


@dataclass(frozen=True, slots=True)
class DropConfig:
    """Forget the candidate."""


@dataclass(frozen=True, slots=True)
class Tell:
    """What became of something that was asked for; `ticket` says by whom.

    outcome   started and queued are followed by done or failed; refused: nothing has changed, nothing will
    """

    ticket: int
    outcome: Literal["started", "queued", "done", "failed", "refused"]
    text: str


@dataclass(frozen=True, slots=True)
class Exit:
    """The service is over: nothing of any worker is left."""

    status: int


ConfigEffect = ReadConfig | CommitConfig | DropConfig
Effect = (
    Spawn | Send | Terminate | Kill | KillAll | CloseListeners | ShowSeat | ShowRow | Log | Tell | ConfigEffect | Exit
)
