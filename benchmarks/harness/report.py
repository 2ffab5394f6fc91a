"""What was measured, on the terminal and as JSON."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.harness.rounds import Quartiles, Rounds, quartiles
from benchmarks.harness.rows import Row, Suite

COLOURS = {"stretch": "green", "reach": "yellow", "missed": "red", None: "default"}


@dataclass(frozen=True)
class Line:
    """A row with its figures; without them, `why` it has none."""

    suite: str
    row: Row
    figures: Quartiles | None = None
    rounds: int = 0
    why: str = ""

    @property
    def verdict(self) -> str | None:
        """How far it comes of its mark: stretch, reach, missed; None: it has no mark, or no figures."""
        if self.figures is None or self.row.mark is None:
            return None
        return self.row.mark.met_by(self.figures.median)

    def document(self) -> dict[str, Any]:
        """It as JSON has it."""
        mark = None if self.row.mark is None else asdict(self.row.mark)
        figures = None if self.figures is None else asdict(self.figures)
        return {
            "suite": self.suite,
            "row": self.row.name,
            "what": self.row.what,
            "unit": self.row.unit,
            "figures": figures,
            "rounds": self.rounds,
            "mark": mark,
            "verdict": self.verdict,
            "why_not_measured": self.why or None,
        }


@dataclass
class Results:
    """All lines, and the samples that they are made of: suite -> case -> variant -> figure -> quartiles."""

    lines: list[Line] = field(default_factory=list)
    samples: dict[str, dict[str, dict[str, dict[str, Quartiles]]]] = field(default_factory=dict)

    def add(self, suite: Suite, rows: list[Row], rounds: Rounds, skipped: dict[str, str]) -> None:
        """Take in what a suite has measured. `skipped` has the variants that could not be, with the reason."""
        for row in rows:
            figures = rounds.figures(row)
            if figures:
                self.lines.append(Line(suite.name, row, quartiles(figures), len(figures)))
            else:
                reasons = [rounds.failed.get(key) or skipped.get(key[1], "") for key in row.needs]
                why = next((reason for reason in reasons if reason), "no round has all of its cases")
                self.lines.append(Line(suite.name, row, why=why))
        cases = self.samples.setdefault(suite.name, {})
        for (case, variant), found in rounds.sample_quartiles().items():
            cases.setdefault(case, {})[variant] = found

    def write(self, path: Path) -> None:
        """As JSON."""
        document = {
            "python": platform.python_version(),
            "kernel": platform.release(),
            "machine": platform.machine(),
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)),
            "rows": [line.document() for line in self.lines],
            "samples": {
                suite: {
                    case: {
                        variant: {name: asdict(one) for name, one in figures.items()}
                        for variant, figures in variants.items()
                    }
                    for case, variants in cases.items()
                }
                for suite, cases in self.samples.items()
            },
        }
        path.write_text(json.dumps(document, indent=1) + "\n")

    def show(self, console: Console) -> None:
        """As tables, the marks beside the figures."""
        suites = list(dict.fromkeys(line.suite for line in self.lines))
        by_suite = {suite: [line for line in self.lines if line.suite == suite] for suite in suites}
        matrices = [suite for suite in suites if any(line.row.variant for line in by_suite[suite])]
        plain = [line for suite in suites if suite not in matrices for line in by_suite[suite]]
        if plain:
            console.print(_list(plain))
        for suite in matrices:
            console.print(_matrix(suite, by_suite[suite]))
        told = set()
        for line in self.lines:
            if line.why and (line.row.variant or line.row.name, line.why) not in told:
                told.add((line.row.variant or line.row.name, line.why))
                text = f"not measured: {line.row.variant or line.row.name}: {line.why}"
                console.print(text, style="magenta", highlight=False, markup=False)


def _list(lines: list[Line]) -> Table:
    """A line for each row."""
    table = Table(title="medians (quartiles) of paired rounds", title_justify="left")
    table.add_column("what", min_width=40)
    for column in ("measured", "reach", "stretch"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("")
    suite = lines[0].suite
    for line in lines:
        if line.suite != suite:
            table.add_section()
        suite = line.suite
        table.add_row(line.row.what, *_cells(line), line.verdict or "", style=COLOURS[line.verdict])
    return table


def _matrix(suite: str, lines: list[Line]) -> Table:
    """A line for each `what`, a column for each variant."""
    table = Table(title=f"{suite}: medians (quartiles) of paired rounds", title_justify="left")
    table.add_column("what")
    variants = list(dict.fromkeys(line.row.variant for line in lines))
    for variant in variants:
        table.add_column(variant.replace(", ", "\n").replace("-", "-\n", 1), justify="right", no_wrap=True)
    table.add_column("reach\nstretch", justify="right")
    for what in dict.fromkeys(line.row.what for line in lines):
        found = {line.row.variant: line for line in lines if line.row.what == what}
        cells = []
        marks = ""
        for variant in variants:
            line = found.get(variant)
            if line is None:
                cells.append(Text())
                continue
            _, reach, stretch = _cells(line)
            marks = f"{reach}\n{stretch}" if line.row.mark else marks
            cells.append(Text(_short(line), style=COLOURS[line.verdict]))
        unit = next(line.row.unit for line in found.values())
        table.add_row(f"{what}, {unit}" if unit else what, *cells, marks)
    return table


def _cells(line: Line) -> tuple[str, str, str]:
    unit = f" {line.row.unit}" if line.row.unit else ""
    mark = line.row.mark
    reach = "" if mark is None else f"{mark.reach:g}{unit}"
    stretch = "" if mark is None or mark.stretch is None else f"{mark.stretch:g}{unit}"
    if line.figures is None:
        return "-", reach, stretch
    low, median, high = (shown(one) for one in (line.figures.low, line.figures.median, line.figures.high))
    return f"{median} ({low} to {high}){unit}", reach, stretch


def _short(line: Line) -> str:
    """The median, and below it the quartiles where they are others."""
    if line.figures is None:
        return "-"
    low, median, high = (shown(one) for one in (line.figures.low, line.figures.median, line.figures.high))
    return median if low == high else f"{median}\n{low}-{high}"


def shown(figure: float) -> str:
    """With as many digits as mean something."""
    size = abs(figure)
    return (
        f"{figure:.0f}" if size >= 100 or figure == int(figure) else f"{figure:.1f}" if size >= 10 else f"{figure:.2f}"
    )


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return "unknown"
