"""Plays the conformance suite both ways and prints its table: `python -m tests.conformance [WORD ...]`.

With words, only the cases whose line or name has one of them.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from pathlib import Path

from conformance.cases import CASES
from conformance.memory import play_all
from conformance.processes import ProcessFleets
from conformance.script import Case
from rich.console import Console
from rich.table import Table

Results = dict[str, Exception | None]


async def play(cases: list[Case]) -> tuple[Results, Results, list[str]]:
    """Both ways; and what the services left."""
    memory: Results = {}
    processes: Results = {}
    await play_all(cases, lambda case, error: memory.update({case.name: error}))
    with tempfile.TemporaryDirectory() as folder:
        fleets = ProcessFleets(Path(folder))
        try:
            await fleets.play(cases, lambda case, error: processes.update({case.name: error}))
        finally:
            left = fleets.stop()
    return memory, processes, left


def main() -> int:
    """Play and print; 0 when all is green."""
    logging.disable()  # the routers in memory and their apps say what they are meant to say
    words = sys.argv[1:]
    cases = [case for case in CASES if not words or any(word in case.line or word in case.name for word in words)]
    memory, processes, left = asyncio.run(play(cases))
    table = Table("line", "case", "steps", "in memory", "processes", title=f"{len(cases)} cases of the session rule")
    line = ""
    for case in cases:
        cells = ["[green]ok[/]" if found[case.name] is None else "[red]FAILED[/]" for found in (memory, processes)]
        if case.line != line and line:
            table.add_section()
        table.add_row("" if case.line == line else case.line, case.name, str(len(case.steps)), *cells)
        line = case.line
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    failures = [error for found in (memory, processes) for error in found.values() if error is not None]
    for error in failures:
        console.print(f"[red]{error}[/]")
    if left:
        console.print(f"[red]left behind: {left}[/]")
    console.print(f"{2 * len(cases) - len(failures)} of {2 * len(cases)} green")
    return 1 if failures or left else 0
