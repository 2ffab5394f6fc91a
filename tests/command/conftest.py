"""What the tests of the command share: a file to write a config into, and the command in a real process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run `gym-supervise ARGUMENTS` in a real process, in the test's folder, and wait for its end."""

    def run(*arguments: str, env: Mapping[str, str] | None = None, cwd: Path = tmp_path) -> Ended:
        environment = {key: value for key, value in os.environ.items() if key != "RUNTIME_DIRECTORY"}
        environment["PYTHONPATH"] = str(ROOT)
        done = subprocess.run(
            [sys.executable, "-c", "import gym_supervise; gym_supervise.main()", *arguments],
            cwd=cwd,
            env=environment | dict(env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Write config.yaml into the test's folder."""

    def write(text: str) -> Path:
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return path

    return write
