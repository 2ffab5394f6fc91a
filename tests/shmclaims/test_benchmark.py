"""The benchmark runs and writes what it measured; how fast the machine is, is no test's business."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import table


def test_the_benchmark_reports_every_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A few rounds: quartiles of both ways and of their ratio for each operation, on the terminal and as JSON."""
    monkeypatch.setattr(table, "OUT", tmp_path)
    assert table.main(["--rounds", "3", "--max-sessions", "1000"]) == 0
    found = json.loads((tmp_path / "table.json").read_text())
    assert set(found["operations"]) == {"lookup", "miss", "claim", "release"}
    for operation in found["operations"].values():
        for quartiles in operation.values():
            assert quartiles == sorted(quartiles)
            assert quartiles[0] > 0
    shown = capsys.readouterr().out
    assert all(operation in shown for operation in found["operations"])
