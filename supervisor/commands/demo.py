"""`gym-supervise demo`: the counter on 4 plain workers and on 4 supervised ones, side by side."""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from supervisor.commands import demo_sides
from supervisor.commands.episodes import Outcome, Tally, play
from supervisor.errors import EXIT_FINE, EXIT_OTHER, SupervisorError

EPISODES = 200
WORKERS = 4

EPILOG = """\b
An episode starts a session with a count, increments it and has it verified,
each request on a new connection. Needs aiohttp: pip install 'gym-supervise[demo]'
"""

GO_ON = """\
How to go on, with an app of your own:
  gym-supervise init --preset gym-resources    write a commented config.yaml
  gym-supervise check config.yaml              what would run, and what is wrong
  gym-supervise serve config.yaml              run it; then, from another shell:
  gym-supervise status config.yaml
  gym-supervise claims config.yaml --watch\
"""


@click.command("demo", epilog=EPILOG)
def command() -> int:
    """Play 200 episodes against 4 plain uvicorn workers and against 4 supervised ones."""
    if importlib.util.find_spec("aiohttp") is None:
        raise SupervisorError(
            "demo: its client is missing", found="no package aiohttp", do="pip install 'gym-supervise[demo]'"
        )
    end_on_hangup()
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="gym-supervise-demo-") as folder:
        plain, ours, relayed, requests = _play_both(console, Path(folder))
    console.print(_result(plain, ours))
    console.print(
        f"{relayed} of {requests} requests came in at another worker than the one that owns the session, and were "
        "relayed to it.\n"
    )
    for side, tally in (("plain", plain), ("supervised", ours)):
        for reason, count in tally.reasons.most_common():
            console.print(f"{side}: {count} x {reason}", markup=False)
    console.print(GO_ON, markup=False)
    return EXIT_FINE if ours.right == EPISODES else EXIT_OTHER


def _play_both(console: Console, folder: Path) -> tuple[Tally, Tally, int, int]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        first = progress.add_task(f"uvicorn --workers {WORKERS}", total=EPISODES)
        second = progress.add_task(f"gym-supervise, {WORKERS} workers", total=EPISODES, start=False)

        def played(base_url: str, task: object) -> Tally:
            def advance(_: Outcome) -> None:
                progress.advance(task)  # type: ignore[arg-type]

            return asyncio.run(play(base_url, EPISODES, on_done=advance))

        with demo_sides.plain(folder, workers=WORKERS) as side:
            plain = played(side.base_url, first)
        progress.start_task(second)
        with demo_sides.supervised(folder, workers=WORKERS) as ours:
            tally = played(ours.base_url, second)
            return plain, tally, ours.total("relayed_out"), ours.total("requests")


def _result(plain: Tally, ours: Tally) -> Table:
    table = Table(title=f"{EPISODES} concurrent episodes", title_justify="left")
    table.add_column("")
    for column in ("right", "wrong state", "refused", "failed"):
        table.add_column(column, justify="right")
    for name, tally in ((f"uvicorn --workers {WORKERS}", plain), (f"gym-supervise, {WORKERS} workers", ours)):
        style = "green" if tally.right == EPISODES else "red"
        counts = (tally.wrong, tally.refused, tally.failed)
        table.add_row(name, f"[{style}]{tally.right} of {EPISODES}[/]", *map(str, counts))
    return table


def end_on_hangup() -> None:
    """Let SIGTERM and SIGHUP end the demo as Ctrl-C does, so that what it has started is stopped."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
