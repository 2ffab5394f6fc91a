"""Servers of a benchmark end with it, however it ends, with all that came of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from whole.harness import REPO, TAG, eventually, tagged

from benchmarks.harness.processes import Kept

STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
    os._exit(0)
os.wait()
print("up", flush=True)
time.sleep(600)
"""

BENCHMARK = """
import sys, time
from pathlib import Path
from benchmarks.harness.processes import Kept
kept = Kept([sys.executable, "-c", sys.argv[1]], Path(sys.argv[2]), grace=0.2)
time.sleep(600)
"""


@pytest.fixture
def tag(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A mark in the environment of all processes; none is left."""
    mark = os.urandom(8).hex()
    monkeypatch.setenv(TAG, mark)
    yield mark
    for pid in tagged(mark):
        if pid != os.getpid():
            os.kill(pid, signal.SIGKILL)


def test_a_killed_benchmark_leaves_no_server(tmp_path: Path, tag: str) -> None:
    """SIGKILL of the benchmark: a server that ignores SIGTERM, its children and its orphans are gone."""
    log = tmp_path / "log"
    benchmark = subprocess.Popen([sys.executable, "-c", BENCHMARK, STUBBORN, str(log)], cwd=REPO)
    eventually(lambda: log.exists() and "up" in log.read_text(), "the server is up")
    assert len(tagged(tag)) == 5  # the benchmark, the keeper, the server, its child and its orphan
    benchmark.kill()
    benchmark.wait()
    eventually(lambda: not tagged(tag), "no process is left")


def test_a_kept_server_is_started_again(tmp_path: Path, tag: str) -> None:
    """With `restart` a killed server comes back with another pid; after `stop` nothing is left."""
    kept = Kept([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "log", restart=True)
    try:
        for _ in range(5):  # also a server that is killed before it has begun
            (first,) = eventually(kept.pids, "the server")
            os.kill(first, signal.SIGKILL)
            eventually(lambda: kept.pids() not in ([], [first]), "the server again")
    finally:
        kept.stop()
    assert not tagged(tag)
