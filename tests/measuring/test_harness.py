"""The benchmarks' harness: pairing, marks, and what it reports. How fast the machine is, is no test's business."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import suites
from benchmarks.harness import rounds
from benchmarks.harness.plot import draw
from benchmarks.harness.report import Results
from benchmarks.harness.rows import Case, Mark, Opened, Row, Suite, Unmeasurable, difference, ratio, single

MARKS = [
    (Mark(2.0, 1.5), 1.5, "stretch"),
    (Mark(2.0, 1.5), 1.6, "reach"),
    (Mark(2.0, 1.5), 2.1, "missed"),
    (Mark(2.0), 0.0, "reach"),
    (Mark(0.8, 0.9, best="most"), 0.9, "stretch"),
    (Mark(0.8, 0.9, best="most"), 0.8, "reach"),
    (Mark(0.8, 0.9, best="most"), 0.7, "missed"),
]


@pytest.mark.parametrize(("mark", "figure", "expected"), MARKS)
def test_a_figure_is_judged_by_its_mark(mark: Mark, figure: float, expected: str) -> None:
    """Less or more is better, as the mark says; the mark itself counts as reached."""
    assert mark.met_by(figure) == expected


def test_figures_are_paired_within_a_round() -> None:
    """Two variants that drift together keep their ratio and their difference in every round."""
    drift = iter(range(1, 100))
    now = [0]

    def slow() -> dict[str, float]:
        return {"s": 2.0 * now[0]}

    def fast() -> dict[str, float]:
        return {"s": 1.0 * now[0]}

    def clock() -> dict[str, float]:
        return {}

    cases = [Case("x", "slow", slow), Case("x", "fast", fast), Case("clock", "", clock)]
    found = rounds.run(cases, 9, warms=True, tell=lambda _: now.__setitem__(0, next(drift)))
    assert len(found.samples) == 9
    row = Row("r", "what", "", ratio("s", ("x", "slow"), ("x", "fast")))
    assert found.figures(row) == [2.0] * 9
    row = Row("d", "what", "us", difference("s", ("x", "slow"), ("x", "fast"), times=10))
    assert found.figures(row) == [10.0 * number for number in range(2, 11)]


def test_a_round_has_every_case_once_in_varying_order() -> None:
    """Of 40 rounds of two cases each is first in some."""
    order: list[str] = []

    def note(name: str) -> dict[str, float]:
        order.append(name)
        return {}

    cases = [Case("a", "", lambda: note("a")), Case("b", "", lambda: note("b"))]
    rounds.run(cases, 40, warms=False, tell=lambda _: None)
    pairs = [tuple(order[at : at + 2]) for at in range(0, 80, 2)]
    assert set(pairs) == {("a", "b"), ("b", "a")}


def test_what_cannot_be_measured_is_said(tmp_path: Path) -> None:
    """A case that fails and a variant that is missing leave their rows without figures, each with the reason."""

    def fails() -> dict[str, float]:
        raise Unmeasurable("refused: 502")

    rows = [
        Row("good", "good", "", single("s", ("good", "")), Mark(2.0)),
        Row("bad", "bad", "", ratio("s", ("bad", ""), ("good", ""))),
        Row("absent", "absent", "", single("s", ("good", "nginx"))),
    ]
    found = rounds.run(
        [Case("good", "", lambda: {"s": 1.0}), Case("bad", "", fails)], 3, warms=False, tell=lambda _: None
    )
    results = Results()
    results.add(
        Suite("s", "", 3, rows, lambda _: pytest.fail("not opened")), rows, found, {"nginx": "nginx is missing"}
    )
    results.write(tmp_path / "results.json")
    lines = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert [line["why_not_measured"] for line in lines] == [None, "Unmeasurable: refused: 502", "nginx is missing"]
    assert [line["verdict"] for line in lines] == ["reach", None, None]
    assert lines[0]["figures"] == {"low": 1.0, "median": 1.0, "high": 1.0}


def test_the_command_measures_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two rounds of the table's suite: a figure for every row, on the terminal and as JSON."""
    assert command.main(["table", "--rounds", "2", "--out", str(tmp_path)]) == 0
    document = json.loads((tmp_path / "results.json").read_text())
    assert len(document["rows"]) == 8
    for line in document["rows"]:
        assert 0 < line["figures"]["low"] <= line["figures"]["median"] <= line["figures"]["high"]
    shown, pasted = capsys.readouterr().out, (tmp_path / "results.md").read_text()
    for line in document["rows"]:
        assert line["what"] in shown
        assert f"| {line['what']} | " in pasted


def test_one_row_runs_its_own_cases_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row's name selects it, and its suite is asked for what the row needs."""
    (found,) = command.chosen(["forwarded-cpu-1"])
    assert [row.name for row in found[1]] == ["forwarded-cpu-1"]
    asked = []

    def opens(wanted: object) -> object:
        asked.append(wanted)
        raise Unmeasurable("enough")

    suite = Suite("relay", "", 1, found[1], opens)  # type: ignore[arg-type]
    result, _ = command.measure(suite, found[1], 1)
    assert asked == [frozenset({("tiny, 1 client", "forwarded"), ("tiny, 1 client", "local")})]
    assert set(result.failed.values()) == {"enough"}


def test_names_are_unique() -> None:
    """A name on the command line means one suite or one row."""
    names = [suite.name for suite in suites.ALL] + [row.name for suite in suites.ALL for row in suite.rows]
    twice = {name for name in names if names.count(name) > 1}
    assert twice <= {"memory"}  # the suite's row of the same name is in it


def test_an_unknown_name_is_refused() -> None:
    """With what was found and where to look."""
    with pytest.raises(SystemExit, match="found relais, expected names of suites or rows; --list"):
        command.main(["relais"])


def test_the_plot_shows_every_marked_row(tmp_path: Path) -> None:
    """An SVG with the names of the rows that have marks."""
    pytest.importorskip("matplotlib")
    rows = [
        Row("a", "row with a mark", "us", single("s", ("c", "")), Mark(2.0, 1.0)),
        Row("b", "row where more is better", "", single("s", ("c", "")), Mark(0.8, 0.9, best="most")),
        Row("c", "row with a mark of none", "", single("s", ("c", "")), Mark(0.0)),
    ]
    found = rounds.run([Case("c", "", lambda: {"s": 1.0})], 3, warms=False, tell=lambda _: None)
    results = Results()
    results.add(Suite("s", "", 3, rows, lambda _: pytest.fail("not opened")), rows, found, {})
    assert draw(results, tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").read_text().count("<svg") == 1


def test_opened_starts_empty() -> None:
    """Nothing is shared between two openings."""
    first, second = Opened(), Opened()
    first.skipped["nginx"] = "missing"
    assert not second.skipped
