"""`gym-supervise stop`: ask the supervisor to stop gracefully, and wait until it and its guardian are gone."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Self

import click

from ops.service import Service
from supervisor.commands.asking import Unanswered, ask
from supervisor.commands.running import find
from supervisor.config import load
from supervisor.errors import ConfigError, NotRunning, SupervisorError

MARGIN_SECONDS = 15.0
UNKNOWN_GRACE_SECONDS = 300.0

EPILOG = """\b
Example:
  gym-supervise stop config.yaml

\b
Requests in flight are served to their end, for at most graceful_seconds.
Exit status: 0 it is gone, 6 nothing was running, 1 it still runs.
"""


@click.command("stop", epilog=EPILOG)
@click.argument("config", type=click.Path())
def command(config: str) -> int:
    """Stop the service of CONFIG gracefully, and wait until it is gone."""
    service = find(config)
    pid = service.supervisor_pid
    if service.state == "dead" or pid is None:
        raise NotRunning(
            f"{config}: nothing runs there",
            found=f"what supervisor {pid} left in {service.runtime_dir} when it died",
            do="the next `serve` removes it",
        )
    started = time.monotonic()
    with Watched(pid) as supervisor, Watched(service.guardian_pid) as guardian:
        if not service.holds_lock(pid):
            print(f"supervisor {pid} has just ended by itself")
            return 0
        _ask(service, supervisor)
        deadline = started + _patience(config)
        for process in (supervisor, guardian):
            if not process.wait(deadline - time.monotonic()):
                raise SupervisorError(
                    f"{config}: the service still runs",
                    found=f"process {process.pid} after {time.monotonic() - started:.0f} s",
                    do=f"`kill -QUIT {pid}` stops it at once, and with it every request in flight",
                )
    print(f"supervisor {pid} has stopped after {time.monotonic() - started:.1f} s")
    return 0


class Watched:
    """A process by its pidfd: a signal cannot reach a later process with the same pid, nor is one waited for."""

    def __init__(self, pid: int | None) -> None:
        self.pid = pid
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        try:
            self._descriptor = None if self.pid is None else os.pidfd_open(self.pid)
        except ProcessLookupError:
            self._descriptor = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def terminate(self) -> None:
        """Send SIGTERM, if it still runs."""
        if self._descriptor is not None:
            signal.pidfd_send_signal(self._descriptor, signal.SIGTERM)

    def wait(self, seconds: float) -> bool:
        """Wait until it has exited; False when it has not after so long."""
        if self._descriptor is None:
            return True
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(max(0.0, seconds) * 1000))


def _ask(service: Service, supervisor: Watched) -> None:
    """Ask over the control socket; a supervisor that does not answer there gets the signal that means the same."""
    if service.state == "stopped":
        pid = service.supervisor_pid
        print(
            f"gym-supervise: supervisor {pid} is stopped by a signal and cannot act; `kill -CONT {pid}` lets it go on"
        )
    trouble = _request_stop(service.runtime_dir)
    if trouble is not None:
        print(f"gym-supervise: {trouble}; sending SIGTERM to the supervisor instead", file=sys.stderr)
        try:
            supervisor.terminate()
        except ProcessLookupError:
            return
        except PermissionError:
            raise SupervisorError(
                f"supervisor {supervisor.pid} cannot be stopped",
                found="a process of another user",
                do="run this as the user that runs the service, or as root",
            ) from None


def _request_stop(runtime_dir: Path) -> str | None:
    """None when it was accepted, else what went wrong."""
    try:
        reply = ask(runtime_dir, {"command": "stop"})
    except Unanswered as trouble:
        return str(trouble)
    return None if reply["ok"] else f"the supervisor refused: {reply.get('error')}"


def _patience(config: str) -> float:
    """How long a graceful stop may take: what the config says, or long where it cannot be read at the moment."""
    try:
        servers = load(config).servers.values()
    except ConfigError:
        return UNKNOWN_GRACE_SECONDS
    return max(server.timeouts.graceful_seconds for server in servers) + MARGIN_SECONDS
