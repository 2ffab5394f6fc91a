"""What the tests of the command share: a file to write a config into, and the command in a real process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from command.held import Held

from ops import service
from ops.dump import Views
from supervisor.config import locate

ROOT = Path(__file__).resolve().parents[2]
UNSET = ("RUNTIME_DIRECTORY", "PYTHONDONTWRITEBYTECODE")


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
        environment = {key: value for key, value in os.environ.items() if key not in UNSET}
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


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start `gym-supervise serve CONFIG` and wait until all its workers are ready; stopped after the test."""
    started: list[tuple[subprocess.Popen[bytes], Path]] = []

    def serving(config: Path, **environment: str) -> subprocess.Popen[bytes]:
        log = tmp_path / f"serve-{len(started)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", "import gym_supervise; gym_supervise.main()", "serve", str(config)],
                env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        started.append((process, log))
        deadline = time.monotonic() + 30
        while not _ready(config):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        return process

    yield serving
    for process, log in started:
        if process.poll() is None:
            process.terminate()
            process.wait(30)
        print(log.read_text())


def _ready(config: Path) -> bool:
    found = service.find(locate(config).runtime_dirs)
    if found is None or found.state != "running":
        return False
    with Views(found) as views:
        servers = views.status(now=time.monotonic())["servers"].values()
    return all(worker["state"] == "ready" for server in servers for worker in server["workers"] or [{"state": ""}])


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    """A supervisor's belongings, with 3 workers and 4 claims."""
    held = Held(tmp_path)
    yield held
    held.clean_up()
    assert not [name for name in os.listdir("/dev/shm") if held.segment[1:] in name]


@pytest.fixture
def full_pipe() -> Iterator[tuple[int, int]]:
    """A pipe whose buffer is full and whose reader does not read: (read end, write end)."""
    reader, writer = os.pipe()
    flags = fcntl.fcntl(writer, fcntl.F_GETFL)
    fcntl.fcntl(writer, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    try:
        while True:
            os.write(writer, b"." * 4096)
    except BlockingIOError:
        pass
    fcntl.fcntl(writer, fcntl.F_SETFL, flags)
    yield reader, writer
    for descriptor in (reader, writer):
        with contextlib.suppress(OSError):
            os.close(descriptor)
