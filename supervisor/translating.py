"""Between the core's vocabulary and the world: a worker's message as an event, a decision's words as a log line."""

from __future__ import annotations

import logging

from supervisor.core import events, messages
from supervisor.core.effects import Log
from supervisor.core.events import Event, Worker

logger = logging.getLogger("gym_supervise.supervisor")

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def event_of(worker: Worker, message: messages.FromWorker) -> Event:
    """What a worker's message means to the fleet. A Released is no event: whoever has asked for it is told."""
    match message:
        case messages.Ready():
            return events.WorkerReady(worker)
        case messages.BootFailed(traceback=traceback):
            return events.WorkerBootFailed(worker, traceback)
        case messages.Quiet():
            return events.WorkerQuiet(worker)
        case messages.Drained():
            return events.WorkerDrained(worker)
        case messages.Shared(error=error):
            return events.WorkerShared(worker, error)
        case messages.Cut(count=count, sessions=sessions):
            return events.WorkerCut(worker, count, tuple(sessions))
        case messages.Released():
            raise ValueError(f"found {message}, expected a message that the fleet decides about")


def log(effect: Log) -> None:
    """Write a decision and its reason down; server and worker are fields of the record, too."""
    about = f"{effect.server}: " if effect.server is not None else ""
    extra = {"server": effect.server, "worker": effect.index} if effect.server is not None else {}
    logger.log(LEVELS[effect.level], "%s%s", about, effect.text, extra=extra)
