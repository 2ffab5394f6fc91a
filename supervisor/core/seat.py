"""One seat: its state, who sits in it, and what was decided about that worker."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.effects import Effect, Level, Log, ShowRow, ShowSeat
from supervisor.core.events import Worker
from supervisor.core.worker_state import LIVE, State, Step, next_state


@dataclass(slots=True)
class Seat:
    """A place for one worker at a time. All times are monotonic seconds.

    pid, incarnation   of the worker in it; the last one's when there is none
    ready_at           when this worker became ready, None before
    due                when the state has lasted long enough: end of the pause, of the boot, of a worker's own stop
    restarts           workers started here after the first one
    deaths_in_a_row    since a worker last ran well
    boot_failures      in a row
    quiet              this worker has no public connection left
    finishing          it was told to shut down
    condemned          why it was killed, None while it was not
    traceback          what its boot ended with
    """

    server: str
    index: int
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
        shown = self.incarnation if self.live else 0
        effects.append(ShowSeat(self.server, self.index, self.state, shown, self.restarts))
        return effects

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
        self.quiet = self.finishing = False
        return effects

    def log(self, level: Level, text: str) -> Log:
        """A line about the worker in it."""
        return Log(level, text, self.server, self.index)
