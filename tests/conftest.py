"""Fixtures for the whole product: real processes, real sockets, real signals."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from whole.harness import Service

# A shell that starts this in the background has SIGINT ignored, and so would every command that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Makes services; after the test nothing of them may be left. Their log is shown when the test fails."""
    made: list[Service] = []

    def make(app: str, **options: Any) -> Service:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Service(folder, app, **options))
        return made[-1]

    yield make
    left: list[str] = []
    for service in made:
        left += service.cleanup()
        print(service.log.read_text() if service.log.exists() else "")
    assert left == []
