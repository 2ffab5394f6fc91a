"""The supervisor's signals, as events.

They are blocked and read from a descriptor: there are no handlers, so nothing interrupts a decision. Rejected: handlers
that only enqueue, with a wake-up descriptor. They do not say who sent a signal, and that is needed: one stop that
reaches guardian and supervisor alike is one order, not two. A blocked SIGTTOU also lets the supervisor write to a
terminal under `stty tostop`, in whose background it is.
"""

from __future__ import annotations

import signal

from supervisor.core import events
from supervisor.processes.linux import Received, SignalDescriptor

READ = frozenset(
    {
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGCHLD,
        signal.SIGHUP,
        signal.SIGUSR1,
        signal.SIGTTIN,
        signal.SIGTTOU,
    }
)

Asked = events.OperatorEvent | events.ReopenAsked


class Signals:
    """Blocks the signals of READ for good and reads them. `guardian` is the pid whose signals are forwarded ones."""

    def __init__(self, guardian: int) -> None:
        self._guardian = guardian
        signal.pthread_sigmask(signal.SIG_BLOCK, READ)
        self._descriptor = SignalDescriptor(READ)

    def fileno(self) -> int:
        """For epoll."""
        return self._descriptor.fileno()

    def read(self) -> list[Asked]:
        """What has been asked for since the last read. SIGCHLD only wakes the loop."""
        found = (self._event(received) for received in self._descriptor.read())
        return [event for event in found if event is not None]

    def close(self) -> None:
        """Close the descriptor; the signals stay blocked."""
        self._descriptor.close()

    def _event(self, received: Received) -> Asked | None:
        number = signal.Signals(received.number)
        match number:
            case signal.SIGTERM | signal.SIGINT:
                return events.StopSignal(number.name, forwarded=received.sender == self._guardian)
            case signal.SIGQUIT:
                return events.QuitSignal()
            case signal.SIGCHLD:
                return None
            case signal.SIGUSR1:
                return events.ReopenAsked(number.name)
            case signal.SIGHUP:
                return events.ReloadAsked(number.name, forwarded=received.sender == self._guardian)
            case signal.SIGTTIN | signal.SIGTTOU:
                return events.ScaleAsked(number.name, step=1 if number is signal.SIGTTIN else -1)
            case _:
                return None
