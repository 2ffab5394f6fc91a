"""Nobody reads the log: the supervisor goes on as if somebody did."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from processes.harness import Stubs
from whole.harness import eventually

Make = Callable[..., Stubs]


def fill(pipe: int) -> None:
    """Until nothing more goes in."""
    os.set_blocking(pipe, False)
    try:
        while True:
            os.write(pipe, b"x" * 4096)
    except BlockingIOError:
        pass
    try:
        while True:
            os.write(pipe, b"x")
    except BlockingIOError:
        os.set_blocking(pipe, True)


@pytest.mark.parametrize("reader", ["stuck", "gone"])
def test_a_pipe_that_nobody_reads_freezes_nobody(stubs: Make, reader: str) -> None:
    """Deaths are seen, workers replaced, and a stop stops, whether the reader stands still or has left."""
    reading, writing = os.pipe()
    service = stubs(workers=2)
    try:
        service.start(stdout=writing, stderr=writing)
        if reader == "gone":
            os.close(reading)
        else:
            fill(writing)
        for deaths in range(3):
            os.kill(service.pids()[0], signal.SIGKILL)
            eventually(lambda: service.restarts() > deaths, "the replacement")
            service.wait_ready()
        assert service.stop() == 0
    finally:
        os.close(writing)
        if reader == "stuck":
            os.close(reading)
