"""`gym-supervise reload`: config and code anew, without losing a session."""

from __future__ import annotations

import click

from supervisor.commands.changing import NO_WAIT, change

EPILOG = """\b
Examples:
  gym-supervise reload config.yaml
  gym-supervise reload config.yaml --force

\b
One new worker first. If it does not get ready, nothing has changed, and the
message says why. Then the others are replaced, one after the other. Old workers
take no new session, serve those that they have, and end with the last of them,
or after drain_seconds. While they do, a further reload waits; --force ends them.

\b
Exit status: 0 every worker is new; 1 the new code or config does not work, or
not everywhere, and the message says what is the case now; 6 nothing runs there.
"""


@click.command("reload", epilog=EPILOG)
@click.argument("config", type=click.Path())
@click.option("--force", is_flag=True, help="Do not wait for workers that still drain: their sessions are lost.")
@click.option("--no-wait", is_flag=True, help=NO_WAIT)
def command(config: str, *, force: bool, no_wait: bool) -> int:
    """Read config and code of CONFIG's service anew."""
    return change(config, {"command": "reload", "force": force}, wait=not no_wait)
