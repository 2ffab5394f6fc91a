"""Plays the wire's table on every stack and prints it: `python -m tests.wire [WORD ...]`.

With words, only the cases whose group or name has one of them.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table
from wire.cases import CASES
from wire.script import Case
from wire.stacks import BY_RELAY, DIRECTLY, STACKS, Result, Stack, play

CELLS = {"equal": "[green]equal[/]", "may differ": "[yellow]may differ[/]", "-": "-"}


async def play_all(stacks: list[Stack], cases: list[Case]) -> dict[str, dict[str, Result]]:
    """Every stack at once: by its name, what became of each case."""
    with tempfile.TemporaryDirectory() as folder:
        played = [play(stack, [case for case in cases if case.is_for(stack.name)], Path(folder)) for stack in stacks]
        return dict(zip((stack.name for stack in stacks), await asyncio.gather(*played), strict=True))


def verdict(case: Case, stack: str, result: Result | None) -> str:
    """One cell of the table."""
    if result is None:
        return "-"
    if isinstance(result, Exception):
        return f"FAILED: {type(result).__name__}: {result}"
    directly = result[DIRECTLY]
    others = {way: seen for way, seen in result.items() if seen != directly}
    if not others:
        return "equal"
    if set(others) <= BY_RELAY and case.why(stack) is not None:
        return "may differ"
    return f"FAILED: directly {directly}\n" + "\n".join(f"{way} {seen}" for way, seen in others.items())


def main() -> int:
    """Play and print; 0 when nothing differs that must not."""
    words = sys.argv[1:]
    cases = [case for case in CASES if not words or any(word in case.slug for word in words)]
    stacks = [stack for stack in STACKS if not stack.missing]
    began = time.monotonic()
    results = asyncio.run(play_all(stacks, cases))
    title = f"{len(cases)} cases of the wire, directly, relayed and handed over, in {time.monotonic() - began:.0f} s"
    table = Table("", "case", *(stack.title for stack in stacks), title=title)
    failures, reasons, group = [], [], ""
    for case in cases:
        verdicts = [verdict(case, stack.name, results[stack.name].get(case.slug)) for stack in stacks]
        failures += [f"{case.slug}: {text}" for text in verdicts if text.startswith("FAILED")]
        reasons += [f"{case.group}, {case.name}: {reason}" for reason in sorted(set(case.differs.values()))]
        if case.group != group and group:
            table.add_section()
        cells = [CELLS.get(text, "[red]FAILED[/]") for text in verdicts]
        table.add_row("" if case.group == group else case.group, case.name, *cells)
        group = case.group
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    for text in reasons:
        console.print(f"may differ: {text}", style="yellow", markup=False)
    for text in failures:
        console.print(text[:3000], style="red", markup=False)
    missing = {name for stack in STACKS for name in stack.missing}
    if missing:
        console.print(f"not installed, so left out: {', '.join(sorted(missing))}")
    return 1 if failures else 0
