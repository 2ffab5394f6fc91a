"""`gym-supervise drain`: a new worker in place of one, which ends with its last session."""

from __future__ import annotations

import click

from supervisor.commands.changing import NO_WAIT, change

EPILOG = """\b
Examples:
  gym-supervise drain config.yaml 2
  gym-supervise drain config.yaml 0 --server counter

\b
WORKER is its index, as `status` shows it. Its successor starts first; then it
takes no new session, serves those that it has, and ends with the last of them,
or after drain_seconds. `status` shows both under one index until then.

\b
Exit status: 0 it is replaced, and drains; 1 its successor does not get ready,
and it stays; 2 usage; 6 nothing runs there.
"""


@click.command("drain", epilog=EPILOG)
@click.argument("config", type=click.Path())
@click.argument("worker", type=int)
@click.option("--server", help="The server whose worker it is; needed when there are several.")
@click.option("--no-wait", is_flag=True, help=NO_WAIT)
def command(config: str, worker: int, *, server: str | None, no_wait: bool) -> int:
    """Replace one WORKER of CONFIG's service, without losing its sessions."""
    return change(config, {"command": "drain", "worker": worker, "server": server}, wait=not no_wait)
