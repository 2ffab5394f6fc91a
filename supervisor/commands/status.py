"""`gym-supervise status`: the workers of a service, read from shared memory."""

from __future__ import annotations

import json
import sys
import time

import click
from rich.console import Console

from ops import tables
from ops.dump import Views
from ops.service import Service
from supervisor.commands.running import find, tell_state
from supervisor.errors import NotRunning

EPILOG = """\b
Examples:
  gym-supervise status config.yaml
  gym-supervise status config.yaml --json | jq '.servers[].workers[].state'

\b
Reads shared memory only, so it answers when the supervisor is stopped or dead.
Worker states: booting, ready, draining, stopping, backoff, failed.
"""


@click.command("status", epilog=EPILOG)
@click.argument("config", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(config: str, *, as_json: bool) -> int:
    """Show the workers of the service of CONFIG."""
    service = find(config)
    tell_state(service)
    with Views(service) as views:
        require_segments(config, service, views)
        content = views.status(now=time.monotonic())
    if as_json:
        print(json.dumps(content, indent=2))
    else:
        wide_console().print(tables.status(content))
    return 0


def require_segments(config: str, service: Service, views: Views) -> None:
    """Raise NotRunning when there is no segment to read, and name on stderr those that are missing."""
    for server, reason in views.missing.items():
        print(f"gym-supervise: the shared memory of server {server} cannot be read: {reason}", file=sys.stderr)
    if not views.segments:
        starting = service.state == "starting"
        raise NotRunning(
            f"{config}: there is no shared memory to read",
            found=f"supervisor {service.supervisor_pid}, which is {service.state}",
            do="it is not ready yet; try again" if starting else f"`gym-supervise serve {config}` starts it anew",
        )


def wide_console() -> Console:
    """A console that never cuts a column when its output is read by a program."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=200)
