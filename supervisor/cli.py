"""The command `gym-supervise`: its subcommands, and what becomes of their errors.

Each subcommand lives in supervisor/commands and is imported when it is called, so that `serve` imports nothing of the
operator's views and `status` nothing of uvicorn.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from supervisor.errors import EXIT_FINE, EXIT_OTHER, EXIT_SHARED_MEMORY, ConfigError, SupervisorError

COMMANDS = {
    "serve": "run in the foreground until stopped",
    "run": "run a script that calls uvicorn, on several workers",
    "check": "validate, import the apps, show what it would run; change nothing",
    "init": "write a commented config.yaml",
    "status": "show the workers of a running service",
    "claims": "show which worker owns which session",
    "top": "watch the workers of a running service",
    "release": "end the claim of one session",
    "reload": "read config and code anew, without losing a session",
    "scale": "another number of workers",
    "drain": "replace one worker, without losing a session",
    "stop": "stop a running service gracefully",
    "unit": "print a systemd unit for it",
    "demo": "200 episodes on 4 plain workers and on 4 supervised ones",
}

EPILOG = """\b
First steps:
  gym-supervise demo                          see what it does
  gym-supervise init --preset gym-resources   write config.yaml
  gym-supervise check config.yaml             is it right?
  gym-supervise serve config.yaml             run it

\b
Exit status: 0 fine, 2 usage or config, 3 an app failed to boot, 4 cannot bind,
5 shared memory cannot be had, 6 nothing runs there, 1 anything else.
"""


class Commands(click.Group):
    """Subcommands by name, each imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """In the order in which a new user meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import supervisor.commands.NAME and take its `command`."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"supervisor.commands.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gym-supervise", prog_name="gym-supervise")
@click.option("--debug", is_flag=True, help="Show the traceback of an unexpected error.")
def cli(*, debug: bool) -> None:
    """Makes N uvicorn workers behave like one.

    Every session is served by the worker that owns it, or refused with a reason.
    """
    del debug  # read by `main`, before click has parsed anything that can fail


def main(arguments: list[str] | None = None) -> None:
    """Run the command and end the process with its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    status = run(given)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
        status = status or EXIT_OTHER
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """Run the command; returns its exit status. No traceback for what a user can mend."""
    debug = "--debug" in arguments[: _first_command(arguments)]
    try:
        result: Any = cli.main(arguments, prog_name="gym-supervise", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.exceptions.Exit as done:
        return done.exit_code
    except (click.Abort, KeyboardInterrupt):
        print("gym-supervise: interrupted", file=sys.stderr)
        return EXIT_OTHER
    except SupervisorError as error:
        lines = error.problems if isinstance(error, ConfigError) else (str(error),)
        print(*(f"gym-supervise: {line}" for line in lines), sep="\n", file=sys.stderr)
        return error.exit_code
    except Exception as error:
        if debug:
            raise
        return _unexpected(error, arguments)
    return result if isinstance(result, int) else EXIT_FINE


def _first_command(arguments: list[str]) -> int:
    """Where the subcommand stands; its own arguments may look like anything."""
    return next((number for number, text in enumerate(arguments) if text in COMMANDS), len(arguments))


def _unexpected(error: Exception, arguments: list[str]) -> int:
    from shmclaims.segment import SegmentError

    if isinstance(error, SegmentError):
        print(f"gym-supervise: {error}", file=sys.stderr)
        return EXIT_SHARED_MEMORY
    again = " ".join(["gym-supervise", "--debug", *arguments])
    print(f"gym-supervise: unexpected {type(error).__name__}: {error}", file=sys.stderr)
    print(f"gym-supervise: this is a fault in gym-supervise; `{again}` shows where", file=sys.stderr)
    return EXIT_OTHER


def _drop_stdout() -> None:
    """The reader has gone (`| head`): keep the interpreter from complaining about it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
