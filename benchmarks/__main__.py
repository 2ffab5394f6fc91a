"""Measure gym-supervise beside what people use today: `make bench`, or

    python -m benchmarks [NAME ...] [--rounds N]

NAME is a suite or a row (--list shows them); without one, everything is measured. The table has the figures with the
marks beside them; benchmarks/out/ gets results.json, results.md and results.svg.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import suites
from benchmarks.harness import markdown, plot, rounds
from benchmarks.harness.report import Results
from benchmarks.harness.rows import Row, Suite, Unmeasurable

OUT = Path(__file__).parent / "out"


def chosen(names: Sequence[str]) -> list[tuple[Suite, list[Row]]]:
    """The rows of each suite that are asked for. Raises SystemExit for a name that is none."""
    known = {suite.name for suite in suites.ALL} | {row.name for suite in suites.ALL for row in suite.rows}
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"benchmarks: found {', '.join(unknown)}, expected names of suites or rows; --list shows them")
    found = []
    for suite in suites.ALL:
        rows = [row for row in suite.rows if not names or suite.name in names or row.name in names]
        if rows:
            found.append((suite, rows))
    return found


def measure(suite: Suite, rows: Sequence[Row], count: int) -> tuple[rounds.Rounds, dict[str, str]]:
    """Run one suite; its progress goes to stderr."""

    def tell(what: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {suite.name}: {what}", file=sys.stderr, flush=True)

    tell("starts its servers")
    wanted = frozenset(key for row in rows for key in row.needs)
    gc.collect()
    gc.disable()  # the client's own pauses are nobody's latency
    try:
        with suite.open(wanted) as opened:
            return rounds.run(opened.cases, count, warms=suite.warms, tell=tell), opened.skipped
    except Unmeasurable as error:
        return rounds.Rounds(failed=dict.fromkeys(wanted, str(error))), {}
    finally:
        gc.enable()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure gym-supervise.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a suite or a row")
    parser.add_argument("--rounds", type=int, help="for each suite, instead of its own number")
    parser.add_argument("--list", action="store_true", help="show suites and rows")
    parser.add_argument("--out", type=Path, default=OUT, help="where the results go")
    given = parser.parse_args(arguments)
    wanted = chosen(given.names)
    if given.list:
        for suite, rows in wanted:
            print(f"{suite.name}: {suite.about}")
            for row in rows:
                print(f"  {row.name:24} {row.what}")
        return 0
    results = Results()
    for suite, rows in wanted:
        found, skipped = measure(suite, rows, given.rounds or suite.rounds)
        results.add(suite, rows, found, skipped)
    given.out.mkdir(parents=True, exist_ok=True)
    results.write(given.out / "results.json")
    (given.out / "results.md").write_text(markdown.tables(results))
    console = Console(width=None if sys.stdout.isatty() else 140)
    results.show(console)
    drawn = plot.draw(results, given.out / "results.svg")
    console.print(f"in {given.out}: results.json, results.md{', results.svg' if drawn else ''}", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
