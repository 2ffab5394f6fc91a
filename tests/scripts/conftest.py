"""Services that run scripts: whatever the test does, nothing of them is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scripts.runs import Run


@pytest.fixture
def ran(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Make a Run; its script may be a path, or a text that is written into the test's folder."""
    made: list[Run] = []

    def ran(options: list[str], script: Path | str, *argv: str, workers: int = 4) -> Run:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        if isinstance(script, str):
            (folder / "script.py").write_text(script)
            script = folder / "script.py"
        made.append(Run(folder, options, script, *argv, workers=workers))
        return made[-1]

    yield ran
    left = [text for run in made for text in run.cleanup()]
    assert left == [], "\n".join(run.log.read_text() for run in made if run.log.exists())
