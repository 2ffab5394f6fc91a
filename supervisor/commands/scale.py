"""`gym-supervise scale`: another number of workers, without losing a session."""

from __future__ import annotations

import click

from supervisor.commands.changing import NO_WAIT, change

EPILOG = """\b
Examples:
  gym-supervise scale config.yaml counter 6
  gym-supervise scale config.yaml counter 2 --no-wait

\b
Workers that are too many take no new session, serve those that they have, and
end with the last of them, or after drain_seconds. The number holds until the
next reload or start: they read it from the file.

\b
Exit status: 0 there are so many, all ready; 1 refused, or a new one does not
get ready, and the message says which; 2 usage; 6 nothing runs there.
"""


@click.command("scale", epilog=EPILOG)
@click.argument("config", type=click.Path())
@click.argument("server")
@click.argument("workers", type=int)
@click.option("--no-wait", is_flag=True, help=NO_WAIT)
def command(config: str, server: str, workers: int, *, no_wait: bool) -> int:
    """Have WORKERS workers in one SERVER of CONFIG's service."""
    return change(config, {"command": "scale", "server": server, "workers": workers}, wait=not no_wait)
