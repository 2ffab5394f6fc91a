"""What the service manager is told: sd_notify(3) over $NOTIFY_SOCKET, without libsystemd and without ever waiting.

`Notifier` sends. `Announcer` decides what to send, from the loop's own timer, so that a watchdog's ping means that the
loop still turns:

    READY=1               once every server is ready
    RELOADING=1           a reload is under way; READY=1 when it is over, whatever became of it
    STOPPING=1            the service is on its way to its end
    STATUS=               workers and sessions, for `systemctl status`
    WATCHDOG=1            twice within WatchdogSec
    EXTEND_TIMEOUT_USEC=  while it starts, reloads or stops: these have bounds of their own, which the config sets

The supervisor sends it, not the guardian, whose pid the manager has as the main one: the unit needs NotifyAccess=all.
Rejected: MAINPID=, since the manager could not see the exit status of a process that is not its own child.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum

from supervisor.core.fleet import Fleet
from supervisor.core.server import Server
from supervisor.core.worker_state import State

logger = logging.getLogger("gym_supervise.supervisor")

STATUS_SECONDS = 1.0
RETRY_SECONDS = 0.25
EXTEND_EVERY_SECONDS = 5.0
EXTEND_SECONDS = 30.0
"""Less than systemd's default time-outs, so that a supervisor which hangs is still found out by these."""

FIRST_LIFE = frozenset({State.EMPTY, State.STARTING, State.BOOTING})


class Notifier:
    """Sends to the service manager's socket, if there is one.

    Args:
        address: $NOTIFY_SOCKET: a path, or an abstract socket's name after an @; empty: there is no manager.

    """

    def __init__(self, address: str) -> None:
        self._socket: socket.socket | None = None
        self._failing = False
        self._address = "\0" + address[1:] if address.startswith("@") else address
        if address.startswith(("/", "@")):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        elif address:
            logger.warning("NOTIFY_SOCKET: found %r, expected a path or an @ with a name; nobody is notified", address)

    @property
    def listening(self) -> bool:
        """Whether there is somebody to tell."""
        return self._socket is not None

    def send(self, *lines: str) -> bool:
        """Send assignments in one datagram; False: it did not go out, try again later."""
        if self._socket is None:
            return True
        data = "\n".join(lines).encode("utf-8", "backslashreplace")
        try:
            self._socket.sendto(data, socket.MSG_NOSIGNAL, self._address)
        except BlockingIOError:  # it is behind with reading
            return False
        except OSError as error:  # no manager is worth failing for, and one that is executed anew comes back
            if not self._failing:
                logger.warning("the service manager cannot be notified: %s", error)
            self._failing = True
            return False
        self._failing = False
        return True

    def close(self) -> None:
        """Tell nobody any more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def watchdog_seconds(environment: Mapping[str, str], owners: AbstractSet[int]) -> float | None:
    """The manager's WatchdogSec, when it is meant for one of `owners` (pids); None: nobody watches.

    As sd_watchdog_enabled(3) has it, but for two processes: the manager names the guardian.
    """
    usec, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not usec.isdecimal() or int(usec) == 0 or (pid and pid not in map(str, owners)):
        return None
    return int(usec) / 1e6


class Phase(Enum):
    """What the manager was told last."""

    STARTING = "starting"
    READY = "ready"
    RELOADING = "reloading"
    STOPPING = "stopping"


class Announcer:
    """Says what the service does. `now` is monotonic seconds, of CLOCK_MONOTONIC.

    Args:
        notifier: sends.
        fleet: is read, never changed.
        sessions: the open sessions of a server, by its name.
        watchdog_seconds: the manager's WatchdogSec, None without one.

    """

    def __init__(
        self,
        notifier: Notifier,
        fleet: Fleet,
        sessions: Callable[[str], int],
        *,
        watchdog_seconds: float | None = None,
    ) -> None:
        self._notifier = notifier
        self._fleet = fleet
        self._sessions = sessions
        self._ping_seconds = None if watchdog_seconds is None else watchdog_seconds / 2
        self._phase: Phase | None = None
        self._status = ""
        self._due = self._ping_due = self._status_due = self._extend_due = 0.0

    def next_timer(self) -> float | None:
        """When to call `step` at the latest."""
        return self._due if self._notifier.listening else None

    def step(self, now: float) -> None:
        """Say what is due. Call it after whatever may have changed the fleet: what is ready is said at once."""
        if not self._notifier.listening:
            return
        phase = self._wanted()
        if phase is self._phase and now < self._due:
            return
        lines = [] if phase is self._phase else self._state_lines(phase, now)
        if self._ping_seconds is not None and now >= self._ping_due:
            lines.append("WATCHDOG=1")
        if phase is not Phase.READY and (phase is not self._phase or now >= self._extend_due):
            self._extend_due = now
            lines.append(f"EXTEND_TIMEOUT_USEC={round(EXTEND_SECONDS * 1e6)}")
        status = self._status
        if phase is not self._phase or now >= self._status_due:
            status = f"{'' if phase is Phase.READY else f'{phase.value}; '}{describe(self._fleet, self._sessions)}"
            if status != self._status:
                lines.append(f"STATUS={status}")
        if lines and not self._notifier.send(*lines):
            self._due = now + RETRY_SECONDS
            return
        self._phase, self._status = phase, status
        self._plan(now)

    def _wanted(self) -> Phase:
        if self._fleet.stopping:
            return Phase.STOPPING
        if self._phase in (None, Phase.STARTING):
            return Phase.READY if all(map(is_up, self._fleet.servers.values())) else Phase.STARTING
        return Phase.RELOADING if self._fleet.reloading else Phase.READY

    def _state_lines(self, phase: Phase, now: float) -> list[str]:
        match phase:
            case Phase.STARTING:
                return []
            case Phase.READY:
                return ["READY=1"]
            case Phase.RELOADING:
                return ["RELOADING=1", f"MONOTONIC_USEC={int(now * 1e6)}"]
            case Phase.STOPPING:
                return ["STOPPING=1"]

    def _plan(self, now: float) -> None:
        if now >= self._status_due:
            self._status_due = now + STATUS_SECONDS
        if now >= self._extend_due:
            self._extend_due = now + EXTEND_EVERY_SECONDS
        times = [self._status_due]
        if self._phase is not Phase.READY:
            times.append(self._extend_due)
        if self._ping_seconds is not None:
            if now >= self._ping_due:
                self._ping_due = now + self._ping_seconds
            times.append(self._ping_due)
        self._due = min(times)


def is_up(server: Server) -> bool:
    """Whether a server has finished its start: somebody serves, and every seat's first boot is over.

    Not all seats must be ready: one worker that fails and is tried again holds up nobody who waits for the service.
    """
    states = [seat.state for seat in server.seats]
    first = [seat for seat in server.seats if seat.state in FIRST_LIFE and seat.restarts == 0]
    return State.READY in states and not first


def describe(fleet: Fleet, sessions: Callable[[str], int]) -> str:
    """All servers in one line: `counter: 4 of 4 workers ready, 12 sessions`."""
    parts = []
    for name, server in fleet.servers.items():
        if server.gave_up:
            text = "given up, its app fails to boot"
        elif fleet.stopping:
            text = f"{_number(sum(seat.live for seat in (*server.seats, *server.leaving)), 'worker')} left"
        else:
            ready = sum(seat.state is State.READY for seat in server.seats)
            text = f"{ready} of {_number(len(server.seats), 'worker')} ready"
            text += f", {len(server.leaving)} draining" if len(server.leaving) else ""
        parts.append(f"{name}: {text}, {_number(sessions(name), 'session')}")
    return "; ".join(parts)


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def tell_failure(notifier: Notifier, text: str) -> None:
    """Leave the reason for a failed start where `systemctl status` shows it."""
    notifier.send(f"STATUS={text.partition(chr(10))[0]}")
