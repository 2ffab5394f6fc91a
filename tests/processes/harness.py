"""Services of stub workers for tests: real processes, real signals, and a search for whatever they left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from whole.harness import REPO, TAG, eventually, tagged

from shmclaims import Segment, SegmentError

PYTHONPATH = os.pathsep.join([str(REPO), str(REPO / "tests")])
SPAWN_CHILDREN = """
import subprocess, sys
sleep = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
plain = subprocess.Popen(sleep)
own_session = subprocess.Popen(sleep, start_new_session=True)
subprocess.run([sys.executable, "-S", "-c",
    f"import subprocess; subprocess.Popen({sleep!r}, start_new_session=True)"], check=True)
"""
CHILDREN_PER_WORKER = 3


class Stubs:
    """One service of stub workers. `env` is the servers' STUB_... code; other options are the server's."""

    def __init__(self, folder: Path, *, env: dict[str, str] | None = None, log: str = "info", **options: Any) -> None:
        self.folder = folder
        self.tag = uuid4().hex
        self.runtime_dir = folder / "run"
        self.config = folder / "config.yaml"
        self.log = folder / "log"
        self.workers = int(options.get("workers", 2))
        code = {name: textwrap.dedent(value) for name, value in (env or {}).items()}
        server = {
            "app": "none:app",
            "chdir": str(folder),
            "bind": "127.0.0.1:0",
            "workers": self.workers,
            "affinity": {"preset": "none"},
            "env": {"STUB_FOLDER": str(folder), **code},
            "claims": {"max_sessions": 500},
            **options,
        }
        self.servers = {"app": server}
        self._log_level = log
        self.process: subprocess.Popen[bytes] | None = None

    def write_config(self) -> None:
        """Write `servers` down."""
        text = json.dumps(
            {
                "name": "test",
                "runtime_dir": str(self.runtime_dir),
                "servers": self.servers,
                "log": {"level": self._log_level},
            }
        )
        self.config.write_text(text)

    def command(self, *arguments: str) -> list[str]:
        """What starts it."""
        return [sys.executable, "-m", "processes.stub", str(self.config), *arguments]

    @property
    def environment(self) -> dict[str, str]:
        """What it is started with: the tag finds its processes again, whatever becomes of them."""
        return {**os.environ, TAG: self.tag, "PYTHONPATH": PYTHONPATH}

    def start(self, *arguments: str, ready: bool = True, wrap: tuple[str, ...] = (), **options: Any) -> Stubs:
        """Start it; with `ready`, wait until every worker is."""
        self.write_config()
        environment = {**self.environment, **options.pop("env", {})}
        with self.log.open("ab") as log:
            given = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **options}
            self.process = subprocess.Popen([*wrap, *self.command(*arguments)], env=environment, **given)
        if ready:
            self.wait_ready()
        return self

    def wait_ready(self, server: str = "app") -> None:
        """Wait until every seat is ready."""

        def check() -> bool:
            assert self.process is not None
            status = self.process.poll()
            assert status is None, f"the service ended with {status}:\n{self.text}"
            return self.states(server) == ["READY"] * len(self.states(server)) != []

        try:
            eventually(check, "ready workers", 30)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text}") from None

    @property
    def text(self) -> str:
        """The log so far."""
        return self.log.read_text() if self.log.exists() else ""

    @property
    def guardian(self) -> int:
        """Its pid."""
        assert self.process is not None
        return self.process.pid

    @property
    def facts(self) -> dict[str, Any]:
        """What the running supervisor says of itself."""
        found: dict[str, Any] = json.loads((self.runtime_dir / "supervisor.json").read_text())
        return found

    @property
    def supervisor(self) -> int:
        """Its pid."""
        return int(self.facts["pid"])

    @contextlib.contextmanager
    def segment(self, server: str = "app") -> Iterator[Segment]:
        """A server's segment, read-only."""
        segment = Segment.attach(self.facts["segments"][server])
        try:
            yield segment
        finally:
            segment.close()

    def seats(self, server: str = "app") -> list[Any]:
        """As shared memory shows them; none when there is no living service yet."""
        try:
            if self.facts["guardian"] != self.guardian:
                return []  # a crashed predecessor's
            with self.segment(server) as segment:
                return segment.ring.seats()
        except (OSError, ValueError, SegmentError):
            return []

    def states(self, server: str = "app") -> list[str]:
        """The seats' states."""
        return [seat.state.name for seat in self.seats(server)]

    def restarts(self) -> int:
        """Of all seats together."""
        return sum(seat.restarts for seat in self.seats())

    def pids(self, server: str = "app") -> list[int]:
        """The live workers' pids, by index."""
        with self.segment(server) as segment:
            live = [row for row in segment.ring.rows() if segment.ring.is_live(row.incarnation)]
            return [row.pid for row in sorted(live, key=lambda row: row.index)]

    @property
    def port(self) -> int:
        """The real port."""
        with self.segment() as segment:
            return int(segment.info["bind"].rsplit(":", 1)[1])

    def noted(self, name: str, what: str = "") -> Any:
        """What a worker noted under that name, once it has."""
        path = self.folder / name
        eventually(path.exists, what or f"a worker's note {name}; log:\n{self.text}", 20)
        return json.loads(path.read_text())

    def signal(self, number: int) -> None:
        """Signal the guardian."""
        os.kill(self.guardian, number)

    def wait(self, seconds: float = 20.0) -> int:
        """Wait for the end; returns the exit status."""
        assert self.process is not None
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end within {seconds:g} s:\n{self.text}") from None

    def stop(self) -> int:
        """Stop gracefully; returns the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def cleanup(self) -> list[str]:
        """Kill what is left; returns what should not have been."""
        names = []
        with contextlib.suppress(OSError, ValueError):
            names = list(self.facts["segments"].values())
        crashed = self.process is not None and self.process.poll() not in (0, 3, 4, 5)
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        left = []
        with contextlib.suppress(AssertionError):
            eventually(lambda: not tagged(self.tag), "no process of the service", 5)
        for pid, command in tagged(self.tag).items():
            left.append(f"process {pid}: {command}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for name in names:
            with contextlib.suppress(Exception):
                segment = Segment.attach(name)
                segment.unlink()
                segment.close()
                if not crashed:
                    left.append(f"segment {name}")
        if not crashed and self.runtime_dir.exists():
            left += [f"socket {path}" for path in self.runtime_dir.iterdir() if path.is_socket()]
        return left


def run_python(code: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that has the product and the tests on its path."""
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, **options.pop("env", {})}
    given = {"capture_output": True, "text": True, "timeout": 60, "check": False, **options}
    done: subprocess.CompletedProcess[str] = subprocess.run(command, env=environment, **given)
    return done


def free(port: int) -> bool:
    """Whether nobody listens on the port."""
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen()
        except OSError:
            return False
    return True


def descriptors(pid: int) -> dict[int, str]:
    """What a process has open."""
    found = {}
    for entry in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found[int(entry)] = os.readlink(f"/proc/{pid}/fd/{entry}")
    return found


def children(pid: int) -> list[int]:
    """A process's children, zombies included."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def stopped(pid: int) -> bool:
    """Whether a signal has stopped it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
