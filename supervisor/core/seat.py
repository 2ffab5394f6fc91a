"""One seat: its state, who sits in it, and what was decided about that worker.

A worker that is being replaced has a seat of its own beside the one that `status` shows under its index: its successor
boots in a seat that is not shown yet, and it drains in one that is not shown any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.effects import Effect, Level, Log, ShowRow, ShowSeat
from supervisor.core.events import Worker
from supervisor.core.worker_state import LIVE, State, Step, next_state


@dataclass(slots=True)
class Seat:
    """A place for one worker at a time. All times are monotonic seconds.

    key                names it among all seats of its server
    seated             `status` shows it as the place of its index
    shared             its worker claims its sessions in the table, or will when it is ready
    sharing            its worker was told to
    pid, incarnation   of the worker in it; the last one's when there is none
    ready_at           when this worker became ready, None before
    due                when the state has lasted long enough: end of the pause, of the boot, of a worker's own stop
    restarts           workers started here after the first one
    deaths_in_a_row    since a worker last ran well
    boot_failures      in a row
    quiet              this worker has no public connection left
    finishing          it was told to shut down
    leaving            it has no place any more: nobody is to follow it
    condemned          why it was killed, None while it was not
    traceback          what its boot ended with
    """

    server: str
    index: int
    key: int = 0
    seated: bool = True
    shared: bool = True
    sharing: bool = False
    state: State = State.EMPTY
    incarnation: int = 0
    pid: int = 0
    ready_at: float | None = None
    due: float | None = None
    restarts: int = 0
    deaths_in_a_row: int = 0
    boot_failures: int = 0
    quiet: bool = False
    finishing: bool = False
    leaving: bool = False
    condemned: str | None = None
    traceback: str | None = None

    @property
    def worker(self) -> Worker:
        """The worker in it; only while there is one."""
        return Worker(self.server, self.index, self.incarnation)

    @property
    def live(self) -> bool:
        """Whether a process is in it."""
        return self.state in LIVE

    def holds(self, worker: Worker) -> bool:
        """Whether that very incarnation is in it."""
        return self.live and worker.incarnation == self.incarnation

    def move(self, step: Step) -> list[Effect]:
        """Go to the next state and show it. Raises IllegalStep, which has changed nothing."""
        before = self.state
        self.state = next_state(before, step, subject=f"{self.server}, worker {self.index}, pid {self.pid}")
        if self.state is before:
            return []
        self.due = None
        return self.show()

    def show(self) -> list[Effect]:
        """Write the state where `status` and the other workers read it; a dead worker's row is the reaper's."""
        effects: list[Effect] = []
        if self.live:
            effects.append(ShowRow(self.worker, self.state))
        if self.seated:
            shown = self.incarnation if self.live else 0
            effects.append(ShowSeat(self.server, self.index, self.state, shown, self.restarts))
        return effects

    def take_place_of(self, other: Seat) -> list[Effect]:
        """Be shown under the index from here on, in place of another."""
        other.seated, self.seated = False, True
        self.restarts = other.restarts + 1
        self.deaths_in_a_row = 0
        return self.show()

    def seat_worker(self, worker: Worker, pid: int) -> list[Effect]:
        """A process has been started for it."""
        before = (self.incarnation, self.pid)
        self.incarnation, self.pid = worker.incarnation, pid
        try:
            effects = self.move(Step.SPAWNED)
        except Exception:
            self.incarnation, self.pid = before
            raise
        self.ready_at = self.condemned = self.traceback = None
        self.quiet = self.finishing = self.sharing = False
        return effects

    def log(self, level: Level, text: str) -> Log:
        """A line about the worker in it."""
        return Log(level, text, self.server, self.index)
