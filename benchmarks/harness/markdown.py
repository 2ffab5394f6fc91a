"""The tables as Markdown, for docs/performance.md."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.harness.report import Line, Results, shown


def tables(results: Results) -> str:
    """All of them, a headline for each suite."""
    parts = []
    for suite in dict.fromkeys(line.suite for line in results.lines):
        lines = [line for line in results.lines if line.suite == suite]
        table = _matrix(lines) if any(line.row.variant for line in lines) else _list(lines)
        missing = [
            f"Not measured: {line.row.variant or line.row.what}: {line.why.splitlines()[0]}"
            for line in lines
            if line.why
        ]
        parts.append("\n".join([f"### {suite}", "", *table, *(["", *dict.fromkeys(missing)] if missing else []), ""]))
    return "\n".join(parts)


def _list(lines: list[Line]) -> list[str]:
    rows = [("what", "median (quartiles)", "reach", "stretch", "")]
    for line in lines:
        mark, unit = line.row.mark, f" {line.row.unit}" if line.row.unit else ""
        marks = ("", "") if mark is None else (_mark(mark.reach, unit), _mark(mark.stretch, unit))
        rows.append((line.row.what, _figures(line, unit), *marks, line.verdict or ""))
    return _table(rows)


def _matrix(lines: list[Line]) -> list[str]:
    variants = list(dict.fromkeys(line.row.variant for line in lines))
    rows = [("what", *variants, "reach, stretch")]
    for what in dict.fromkeys(line.row.what for line in lines):
        found = {line.row.variant: line for line in lines if line.row.what == what}
        first = next(iter(found.values()))
        cells = [_figures(found[variant], "") if variant in found else "" for variant in variants]
        mark = next((line.row.mark for line in found.values() if line.row.mark), None)
        marks = "" if mark is None else ", ".join(filter(None, (_mark(mark.reach, ""), _mark(mark.stretch, ""))))
        rows.append((f"{what}, {first.row.unit}" if first.row.unit else what, *cells, marks))
    return _table(rows)


def _mark(bound: float | None, unit: str) -> str:
    return "" if bound is None else f"{bound:g}{unit}"


def _figures(line: Line, unit: str) -> str:
    if line.figures is None:
        return "-"
    low, median, high = (shown(one) for one in (line.figures.low, line.figures.median, line.figures.high))
    return f"{median}{unit}" if low == high else f"{median} ({low} to {high}){unit}"


def _table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    first, *others = rows
    return ["| " + " | ".join(row) + " |" for row in (first, ("---",) * len(first), *others)]
