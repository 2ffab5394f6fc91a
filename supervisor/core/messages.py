"""The vocabulary between the supervisor and a worker. How it travels is supervisor.messages' affair."""

from __future__ import annotations

from typing import Literal

import msgspec


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Worker: the lifespan's start-up is done, the private socket listens, public connections are accepted."""


class BootFailed(msgspec.Struct, frozen=True, tag="boot_failed"):
    """Worker: the app cannot be had; it exits with status 3 next."""

    traceback: str


class Quiet(msgspec.Struct, frozen=True, tag="quiet"):
    """Worker, after StopAccepting: no public connection is left, so none of its relays is in flight."""


class Drained(msgspec.Struct, frozen=True, tag="drained"):
    """Worker, after Drain: its last session has ended, no connection and no relayed request is left."""


class Shared(msgspec.Struct, frozen=True, tag="shared"):
    """Worker, after Share: each of its sessions has a claim, and it takes relayed requests. `error`: why not."""

    error: str = ""


class Cut(msgspec.Struct, frozen=True, tag="cut"):
    """Worker, told to finish while it drains: the sessions that are lost with it.

    count     how many
    sessions  readable prefixes of the first hundred
    """

    count: int
    sessions: list[str]


class StopAccepting(msgspec.Struct, frozen=True, tag="stop_accepting"):
    """Supervisor: close the public listeners, refuse placements; the private socket stays."""


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Supervisor: close the public listeners, take no new sessions; serve those that are here until they end."""


class Share(msgspec.Struct, frozen=True, tag="share"):
    """Supervisor, to a worker without siblings: it gets one. Answered with Shared."""


class ReopenLogs(msgspec.Struct, frozen=True, tag="reopen_logs"):
    """Supervisor: open log files anew, they may have been rotated."""


class ChangeLog(msgspec.Struct, frozen=True, tag="change_log"):
    """Supervisor: the config's `log` has changed; for workers that outlive a reload."""

    level: Literal["debug", "info", "warning", "error", "critical"]
    format: Literal["console", "json"]


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    """Supervisor: shut the lifespan down and exit with status 0 within `seconds`; then comes SIGKILL."""

    seconds: float


class Release(msgspec.Struct, frozen=True, tag="release"):
    """Supervisor: an operator wants one of the worker's claims ended. Answered with Released.

    ticket                   comes back with the answer
    slot, control, stripe    the claim, as the supervisor found it: a later one of the same session is another
    when_idle                with requests in flight: end it with the last of them; False: leave it as it is then
    """

    ticket: int
    slot: int
    control: int
    stripe: int
    when_idle: bool = False


class Released(msgspec.Struct, frozen=True, tag="released"):
    """Worker: what became of a Release.

    released    the claim has ended
    ending      it ends with the last of `in_flight` requests, or, with none, within moments
    in_flight   it stays, since `in_flight` requests use it
    busy        it stays, since its stripe of the table is held
    unknown     the claim has ended meanwhile, or is another by now
    """

    ticket: int
    outcome: Literal["released", "ending", "in_flight", "busy", "unknown"]
    in_flight: int = 0


FromWorker = Ready | BootFailed | Quiet | Drained | Shared | Cut | Released
ToWorker = StopAccepting | Drain | Share | Finish | Release | ReopenLogs | ChangeLog
