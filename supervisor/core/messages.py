"""The vocabulary between the supervisor and a worker. How it travels is supervisor.messages' affair."""

from __future__ import annotations

import msgspec


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Worker: the lifespan's start-up is done, the private socket listens, public connections are accepted."""


class BootFailed(msgspec.Struct, frozen=True, tag="boot_failed"):
    """Worker: the app cannot be had; it exits with status 3 next."""

    traceback: str


class Quiet(msgspec.Struct, frozen=True, tag="quiet"):
    """Worker, after StopAccepting: no public connection is left, so none of its relays is in flight."""


class Drained(msgspec.Struct, frozen=True, tag="drained"):
    """Worker, after StopAccepting: its last session has ended."""


class StopAccepting(msgspec.Struct, frozen=True, tag="stop_accepting"):
    """Supervisor: close the public listeners, refuse placements; the private socket stays."""


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    """Supervisor: shut the lifespan down and exit with status 0 within `seconds`; then comes SIGKILL."""

    seconds: float


FromWorker = Ready | BootFailed | Quiet | Drained
ToWorker = StopAccepting | Finish
