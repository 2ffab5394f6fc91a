"""Names in /dev/shm that somebody removes while the service runs, as a log-out does."""

from __future__ import annotations

from collections.abc import Iterator

import posix_ipc
import pytest

from supervisor.config import ServerConfig
from supervisor.segments import NAMES_SECONDS, Segments


@pytest.fixture
def segments() -> Iterator[Segments]:
    """One server's segment."""
    made = Segments()
    made.create("app", ServerConfig.model_validate({"app": "x:y", "claims": {"max_sessions": 100}}), {})
    yield made
    made.close()


def test_it_is_said_once_with_the_way_out(segments: Segments, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing while they are there; then one warning, which names what is gone and how to keep it the next time."""
    segments.step(100.0)
    assert caplog.text == ""
    posix_ipc.unlink_shared_memory(segments.names()["app"])
    for turn in range(1, 4):
        segments.step(100.0 + turn * NAMES_SECONDS)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert segments.names()["app"].strip("/") in record.getMessage()
    assert "loginctl enable-linger" in record.getMessage()
