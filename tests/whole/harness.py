"""A real `gym-supervise serve` for tests: started, watched, stopped, and everything that it left is found."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from shmclaims import Segment

REPO = Path(__file__).resolve().parents[2]
COMMAND = str(Path(sys.executable).parent / "gym-supervise")
TAG = "GYM_SUPERVISE_TEST_TAG"
DEADLINE_SECONDS = 30.0


def eventually(condition: Callable[[], Any], what: str, seconds: float = DEADLINE_SECONDS) -> Any:
    """Wait until `condition` returns something true, and return it; fail after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.01)


def tagged(tag: str) -> dict[int, str]:
    """Live processes whose environment has the tag: pid -> command line."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if f"{TAG}={tag}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
                if state not in "ZX":
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


class Connection:
    """One kept-alive client connection, and the pid of the worker that accepted it."""

    def __init__(self, port: int) -> None:
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)
        self.worker = 0

    def ask(
        self, method: str, path: str, *, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """One request: status, headers, body. A body that is not bytes goes as JSON."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        self.http.request(method, path, body=data, headers=headers or {})
        reply = self.http.getresponse()
        return reply.status, reply.headers, reply.read()


class Service:
    """One `gym-supervise serve` process tree with a config of its own."""

    def __init__(
        self, folder: Path, app: str, *, log: dict[str, Any] | None = None, program: str = COMMAND, **options: Any
    ) -> None:
        self.folder = folder
        self.program = program
        self.tag = uuid4().hex
        self.runtime_dir = folder / "run"
        server: dict[str, Any] = {
            "app": app,
            "chdir": str(REPO / "tests"),
            "bind": "127.0.0.1:0",
            "workers": 4,
            "affinity": {"preset": "gym-resources"},
        }
        server |= options
        self.config = folder / "config.json.yaml"
        self.config.write_text(
            json.dumps(
                {"name": "test", "runtime_dir": str(self.runtime_dir), "servers": {"app": server}, "log": log or {}}
            )
        )
        self.workers = int(server["workers"])
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder / "log"
        self.opened: list[Connection] = []
        self.descriptors: Sequence[int] = ()  # that `serve` finds open

    def start(self, *, ready: bool = True) -> Service:
        """Start it; with `ready`, wait until every worker is."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [self.program, "serve", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, TAG: self.tag},
                pass_fds=self.descriptors,
            )
        if ready:
            self.wait_ready()
        return self

    def wait_ready(self, seconds: float = DEADLINE_SECONDS) -> None:
        """Wait until every seat is ready."""

        def check() -> bool:
            assert self.process is not None
            status = self.process.poll()
            assert status is None, f"serve ended with {status}:\n{self.log.read_text()}"
            seats = [seat.state.name for seat in self.seats()]
            return len(seats) == self.workers and set(seats) == {"READY"}

        eventually(check, f"{self.workers} ready workers; log so far:\n{self.log.read_text()}", seconds)

    def wait_restarted(self) -> None:
        """Wait until a death has been seen and every seat is ready again."""
        eventually(lambda: any(seat.state.name != "READY" for seat in self.seats()), "a death to be seen")
        self.wait_ready()

    @property
    def facts(self) -> dict[str, Any]:
        """What the running supervisor says of itself."""
        found: dict[str, Any] = json.loads((self.runtime_dir / "supervisor.json").read_text())
        return found

    @contextlib.contextmanager
    def segment(self) -> Iterator[Segment]:
        """The server's table, as an operator's command sees it."""
        segment = Segment.attach(self.facts["segments"]["app"])
        try:
            yield segment
        finally:
            segment.close()

    def seats(self) -> list[Any]:
        """The seats as shared memory shows them; empty when there is none yet, or only those of a crashed run."""
        try:
            if self.process is None or self.facts["guardian"] != self.process.pid:
                return []
            with self.segment() as segment:
                return segment.ring.seats()
        except Exception:
            return []

    def rows(self) -> dict[int, Any]:
        """Worker rows by pid, live ones only."""
        with self.segment() as segment:
            return {row.pid: row for row in segment.ring.rows() if segment.ring.is_live(row.incarnation)}

    @property
    def port(self) -> int:
        """The real port."""
        with self.segment() as segment:
            return int(segment.info["bind"].rsplit(":", 1)[1])

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> Connection:
        """A new connection; whoever accepts it."""
        connection = Connection(self.port)
        self.opened.append(connection)
        return connection

    def connections(self, whoami: str = "/whoami") -> dict[int, Connection]:
        """One kept connection to each worker, by pid, told by a route that answers with the pid."""
        found: dict[int, Connection] = {}
        wanted = set(self.rows())

        def more() -> bool:
            connection = self.connect()
            status, _, body = connection.ask("GET", whoami)
            assert status == 200, body
            pid = int(body)
            if pid in wanted and pid not in found:
                connection.worker = pid
                found[pid] = connection
            else:
                spare.append(connection)
            return set(found) == wanted

        spare: list[Connection] = []
        eventually(more, "a connection to each worker")
        for connection in spare:
            connection.http.close()
        return found

    def run(self, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run another gym-supervise command on this config."""
        command = [self.program, arguments[0], str(self.config), *arguments[1:]]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)

    def signal(self, number: int) -> None:
        """Signal the guardian, as a terminal or a service manager would."""
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, seconds: float = DEADLINE_SECONDS) -> int:
        """Wait for the end; returns the exit status."""
        assert self.process is not None
        return self.process.wait(seconds)

    def stop(self) -> int:
        """Stop gracefully; returns the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def cleanup(self) -> list[str]:
        """Kill what is left. Returns what should not have been: processes, segments, sockets."""
        for connection in self.opened:
            connection.http.close()
        self.opened.clear()
        names = []
        with contextlib.suppress(Exception):
            names = list(self.facts["segments"].values())
        crashed = self.process is not None and self.process.poll() is None
        if self.process is not None and crashed:
            self.process.kill()
            self.process.wait()
        left = []
        try:
            eventually(lambda: not tagged(self.tag), "no process of the service", 5)
        except AssertionError:
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
