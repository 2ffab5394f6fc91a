"""The table's marked rows as a picture: each figure over its mark, so that everything left of 1 has reached it."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.harness.report import Line, Results, shown

COLOURS = {"stretch": "#2e8b57", "reach": "#d9a400", "missed": "#c0392b"}


def draw(results: Results, path: Path) -> bool:
    """Write the picture; returns whether there is one: it takes marked rows and matplotlib."""
    lines = [line for line in results.lines if line.verdict is not None]
    if not lines:
        return False
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no plot: matplotlib is missing; pip install 'gym-supervise[bench]'", file=sys.stderr)
        return False
    figure = Figure(figsize=(11, 0.8 + 0.36 * len(lines)))
    axes = figure.add_subplot()
    for at, line in enumerate(reversed(lines)):
        low, median, high, stretch = _over_mark(line)
        axes.barh(at, median, height=0.55, color=COLOURS[line.verdict or ""])
        axes.errorbar(median, at, xerr=[[max(median - low, 0)], [max(high - median, 0)]], color="black", capsize=3)
        if stretch is not None:
            axes.plot([stretch, stretch], [at - 0.38, at + 0.38], color="black", linewidth=1.5, linestyle=":")
        assert line.figures is not None
        axes.annotate(
            f"{shown(line.figures.median)} {line.row.unit}".strip(),
            (max(high, median), at),
            (6, -3),
            textcoords="offset points",
            fontsize=8,
        )
    axes.set_yticks(range(len(lines)), [line.row.what for line in reversed(lines)], fontsize=8)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xlabel(
        "figure over its mark: 1 is the mark, dotted the stretch; bars are medians, whiskers quartiles", fontsize=8
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.12)
    figure.savefig(path, bbox_inches="tight")
    return True


def _over_mark(line: Line) -> tuple[float, float, float, float | None]:
    """Quartiles and stretch over the mark; where more is better, the other way round."""
    mark, figures = line.row.mark, line.figures
    assert mark is not None
    assert figures is not None
    if mark.best == "least":
        reach = mark.reach or 1.0  # a mark of none: none is at 0, and one is as far as a mark missed
        stretch = None if mark.stretch is None else mark.stretch / reach
        return figures.low / reach, figures.median / reach, figures.high / reach, stretch
    low, median, high = (mark.reach / max(one, 1e-9) for one in (figures.high, figures.median, figures.low))
    return low, median, high, None if mark.stretch is None else mark.reach / mark.stretch
