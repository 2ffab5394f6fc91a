"""Fixtures for tests of the processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processes.harness import Stubs


@pytest.fixture
def stubs(tmp_path: Path) -> Iterator[Callable[..., Stubs]]:
    """Makes services of stub workers; after the test nothing of them may be left."""
    made: list[Stubs] = []

    def make(**options: Any) -> Stubs:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Stubs(folder, **options))
        return made[-1]

    yield make
    left: list[str] = []
    for service in made:
        left += service.cleanup()
        print(service.text)
    assert left == []
