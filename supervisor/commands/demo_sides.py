"""The two sides of the demo: the counter on plain uvicorn workers, and on supervised ones.

Each runs in a session of its own, so that the terminal's Ctrl-C reaches the demo alone, which then stops them in order.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ops import service
from ops.dump import Views
from shmclaims.segment import Segment, SegmentError
from supervisor.errors import SupervisorError

START_SECONDS = 60.0
STOP_SECONDS = 15.0
POLL_SECONDS = 0.05
SHOWN_LINES = 15
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

CONFIG = """\
name: demo
runtime_dir: run
servers:
  counter:
    app: counter:app
    chdir: {folder}
    bind: 127.0.0.1:0
    workers: {workers}
    affinity: {{preset: gym-resources}}
    claims: {{max_sessions: 5000}}
    timeouts: {{graceful_seconds: 5}}
    uvicorn: {{access_log: false}}
"""


def counter_folder() -> Path:
    """The folder of counter.py: in an installed wheel beside our packages, in a checkout among the examples."""
    home = Path(__file__).resolve().parents[2]
    for folder in (home / "gym_supervise_demo", home / "examples"):
        if (folder / "counter.py").is_file():
            return folder
    raise SupervisorError(
        "demo: the counter example is missing",
        found=f"neither gym_supervise_demo/counter.py nor examples/counter.py in {home}",
        do="install gym-supervise anew",
    )


class Side:
    """A running side: where it listens, and what it did."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log
        self.base_url = ""

    def wait_for(self, what: str, ready: Callable[[str], str | None]) -> None:
        """Wait until `ready`, called with the log so far, returns the base URL."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            url = ready(self._log.read_text(errors="replace"))
            if url is not None:
                self.base_url = url
                return
            ended = self._process.poll()
            if ended is not None or time.monotonic() > deadline:
                how = f"it ended with status {ended}" if ended is not None else f"not ready in {START_SECONDS:.0f} s"
                tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-SHOWN_LINES:])
                raise SupervisorError(f"demo: {what} did not start: {how}; its last lines:\n{tail}")
            time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def _running(arguments: list[str], folder: Path, log: Path) -> Iterator[Side]:
    """A process in a session of its own; at the end it and whatever is left of its session are gone."""
    process = None
    try:
        with log.open("wb") as output, _deferred():
            process = subprocess.Popen(
                arguments, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        yield Side(process, log)
    finally:
        with _undisturbed():
            if process is not None:
                _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """A second Ctrl-C must not keep the first one from cleaning up."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _deferred() -> Iterator[None]:
    """An interrupt takes effect at the end: a process that starts meanwhile is known by then, and can be stopped."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)


@contextlib.contextmanager
def plain(folder: Path, *, workers: int) -> Iterator[Side]:
    """The counter under `uvicorn --workers N`, ready; `folder` is for its log."""
    arguments = [sys.executable, "-m", "uvicorn", "counter:app", "--app-dir", str(counter_folder())]
    arguments += ["--workers", str(workers), "--host", "127.0.0.1", "--port", "0", "--no-access-log", "--no-use-colors"]

    def ready(log: str) -> str | None:
        address = re.search(r"running on (http://127\.0\.0\.1:\d+)", log)
        return address[1] if address and log.count("Application startup complete") >= workers else None

    with _running(arguments, folder, folder / "plain.log") as side:
        side.wait_for(f"uvicorn --workers {workers}", ready)
        yield side


@contextlib.contextmanager
def supervised(folder: Path, *, workers: int) -> Iterator[SupervisedSide]:
    """The counter under `gym-supervise serve`, ready; `folder` is for its config, its log and its sockets."""
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(folder=counter_folder(), workers=workers))
    arguments = [sys.executable, "-m", "gym_supervise", "serve", str(config)]
    runtime_dir = folder / "run"
    try:
        with _running(arguments, folder, folder / "serve.log") as side:
            mine = SupervisedSide(side, runtime_dir)
            side.wait_for("gym-supervise serve", lambda _: mine.address_when_ready())
            yield mine
    finally:
        _remove_leftovers(runtime_dir)


def _remove_leftovers(runtime_dir: Path) -> None:
    """What a side leaves in shared memory that had to be killed; those of other services are none of our business."""
    left = service.read(runtime_dir)
    for name in left.segments.values() if left is not None and left.state == "dead" else ():
        with contextlib.suppress(SegmentError):
            segment = Segment.attach(name)
            segment.unlink()
            segment.close()


class SupervisedSide:
    """What status says about the supervised side."""

    def __init__(self, side: Side, runtime_dir: Path) -> None:
        self._side = side
        self._runtime_dir = runtime_dir

    @property
    def base_url(self) -> str:
        """Where it listens."""
        return self._side.base_url

    def counter(self) -> dict[str, Any] | None:
        """The server's entry in `status --json`, or None when there is none yet."""
        found = service.read(self._runtime_dir)
        if found is None or not found.segments:
            return None
        with Views(found) as views:
            server: dict[str, Any] | None = views.status(now=time.monotonic())["servers"].get("counter")
        return server

    def address_when_ready(self) -> str | None:
        """The base URL once every worker is ready."""
        server = self.counter()
        if server is None or not server["workers"] or any(one["state"] != "ready" for one in server["workers"]):
            return None
        return f"http://{server['bind']}"

    def total(self, counter: str) -> int:
        """The sum of a counter over the workers."""
        server = self.counter()
        return sum(worker[counter] for worker in server["workers"]) if server else 0
