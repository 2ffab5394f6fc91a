"""The stress command: `python -m tests.stress [--small] [WORD ...]`; with words, the scenarios whose name has one."""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table
from stress.run import Result, run_all
from stress.scenarios import SCENARIOS
from stress.services import Services

WINDOW_SECONDS = 5.0
WORKERS = 8
AGENTS = 4


def raise_descriptors() -> None:
    """As many as the system allows: a connection for each request needs some."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def table_of(results: list[Result]) -> Table:
    """What came of it."""
    table = Table(title=f"{WORKERS} workers, {AGENTS} agent workers in front, window {WINDOW_SECONDS:g} s")
    table.add_column("scenario")
    for name in ("attempts", "correct", "on two workers", "left", "claims left", "sessions with 410", "sent again"):
        table.add_column(name, justify="right")
    table.add_column("requests", justify="right")
    table.add_column("seconds", justify="right")
    for result in results:
        gone = f"{result.gone} of {result.lost} lost" if result.scenario.kills else str(result.gone)
        cells = (
            f"{result.number:,}",
            f"{result.right:,}",
            str(result.doubled),
            str(result.left),
            str(result.claims),
            gone,
            str(result.broken),
            f"{result.requests:,}",
            f"{result.seconds:.0f}",
        )
        table.add_row(result.scenario.name, *cells, style=None if result.good else "red")
    return table


def main() -> int:
    """Run and print; 0 when everything is as it should be."""
    small = "--small" in sys.argv
    words = [word for word in sys.argv[1:] if word != "--small"]
    chosen = [
        (scenario, scenario.small if small else scenario.full)
        for scenario in SCENARIOS
        if not words or any(word in scenario.name for word in words)
    ]
    console = Console(width=None if sys.stdout.isatty() else 160)
    raise_descriptors()

    def note(result: Result) -> None:
        console.print(f"{result.right}/{result.number} {result.scenario.name} in {result.seconds:.0f} s")
        for reason, times in result.reasons.most_common(5):
            console.print(f"  {times} x {reason}", style="red")

    with tempfile.TemporaryDirectory() as folder:
        services = Services(Path(folder), window_seconds=WINDOW_SECONDS, workers=WORKERS, agents=AGENTS)
        try:
            results = asyncio.run(run_all([pair for pair in chosen if pair[1]], services, note))
        finally:
            left = services.stop()
    console.print(table_of(results))
    if left:
        console.print(f"left behind: {left}", style="red")
    return 0 if all(result.good for result in results) and not left else 1
