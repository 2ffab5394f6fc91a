"""`gym-supervise serve`: run in the foreground until stopped."""

from __future__ import annotations

import logging
import os

import click

from supervisor.config import Config, load
from supervisor.logs import lines as logs
from supervisor.processes import lingering
from supervisor.scripts import asking

EPILOG = """\b
Examples:
  gym-supervise serve config.yaml
  SECRET=... gym-supervise serve /etc/my-env/config.yaml

\b
Signals: TERM or INT stop gracefully, a second one at once; QUIT at once;
HUP reloads config and code; TTIN and TTOU are one worker more and one less;
USR1 opens log files anew.
"""


def run_file(path: str | os.PathLike[str]) -> int:
    """Serve a config file until a signal stops it; returns the exit status."""
    config = load(path)
    logs.configure(config.log, role="guardian")
    return run_config(asking.complete(config))


def run_config(config: Config) -> int:
    """Serve a config that is complete; returns the exit status."""
    from supervisor import serve

    logger = logging.getLogger("gym_supervise.config")
    for warning in config.warnings:
        logger.warning("%s: %s", config.source, warning)
    if (text := lingering.advice(os.getuid())) is not None:
        logger.warning("%s", text)
    return serve.run(config)


@click.command("serve", epilog=EPILOG)
@click.argument("config", type=click.Path())
def command(config: str) -> int:
    """Run the servers of CONFIG in the foreground until stopped."""
    return run_file(config)
