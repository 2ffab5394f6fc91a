"""A machine with a systemd of its own, and services on it that are installed as an operator installs them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from whole.harness import COMMAND, REPO

HERE = Path(__file__).resolve().parent
SANDBOX = HERE / "systemd-sandbox"
USER = "gym-supervise"
CONFIGS = "/etc/gym-supervise"
UNITS = "/etc/systemd/system"


def why_not() -> str | None:
    """Why there can be no sandbox on this machine; None: there can."""
    if os.geteuid() != 0:
        return "a systemd of one's own needs root"
    if not Path("/lib/systemd/systemd").exists():
        return "there is no systemd on this machine"
    if missing := [tool for tool in ("unshare", "nsenter", "useradd") if shutil.which(tool) is None]:
        return f"a sandbox needs {', '.join(missing)}"
    if any(os.stat(path).st_dev != os.stat("/").st_dev for path in (REPO, sys.executable, sys.base_prefix)):
        return "the sandbox shows the root file system only, and this repository or its Python is on another one"
    return None


class Done:
    """A command's end."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    def __repr__(self) -> str:
        return f"<status {self.status}\n{self.out}\n{self.err}>"


class NoMachine(Exception):
    """systemd did not come up."""


class Machine:
    """A running sandbox."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [str(SANDBOX), sys.executable, str(HERE / "agent.py")],
            cwd=REPO,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lock = threading.Lock()
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        if not self._process.stdout.readline():
            reason = self._process.stderr.read()
            self.close()
            raise NoMachine(reason)

    def run(self, *command: str, text: str = "", seconds: float = 60) -> Done:
        """Run a command as root; whatever its status."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            print(json.dumps({"run": command, "input": text, "seconds": seconds}), file=self._process.stdin, flush=True)
            return Done(**json.loads(self._process.stdout.readline()))

    def do(self, *command: str, text: str = "") -> str:
        """Run a command that has to succeed; its output."""
        done = self.run(*command, text=text)
        assert done.status == 0, f"{command}: {done}"
        return done.out

    def write(self, path: str, text: str) -> None:
        """Write a file that everybody may read."""
        self.do("install", "-D", "-m", "0644", "/dev/stdin", path, text=text)

    def prepare(self) -> None:
        """A user for the services, who can reach the interpreter and the repository."""
        self.do("useradd", "--system", "--no-create-home", USER)
        for path in {Path(sys.base_prefix), Path(sys.executable), REPO}:
            for folder in path.parents:
                self.do("chmod", "a+x", str(folder))

    def close(self) -> None:
        """Switch it off."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(20)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


class Unit:
    """One service on a machine, from `gym-supervise unit`."""

    def __init__(self, machine: Machine, name: str, *, bind: str = "127.0.0.1:0", **options: Any) -> None:
        self.machine = machine
        self.name = name
        self.service = f"gym-supervise-{name}.service"
        self.socket = f"gym-supervise-{name}.socket"
        self.config = f"{CONFIGS}/{name}.yaml"
        self.state = f"/var/lib/gym-supervise/{name}"
        self.server: dict[str, Any] = {
            "app": "unit_app:app",
            "chdir": str(HERE),
            "bind": bind,
            "workers": 2,
            "affinity": {"preset": "custom", "sources": [{"header": "x-session"}], "unknown": "claim"},
            "claims": {"max_sessions": 1000},
            "timeouts": {"graceful_seconds": 10},
            **options,
        }

    def install(self, *, drop_in: str = "", listen: str | None = None) -> Unit:
        """Write config and units; the code that runs is this repository's."""
        self.write_config()
        command = ["env", f"PYTHONPATH={REPO}", COMMAND, "unit", self.config]
        self.machine.write(f"{UNITS}/{self.service}", self.machine.do(*command))
        if listen is not None:
            self.machine.write(f"{UNITS}/{self.socket}", self.machine.do(*command, "--socket", listen))
        text = f"[Service]\nEnvironment=PYTHONPATH={REPO}\n{drop_in}"
        self.machine.write(f"{UNITS}/{self.service}.d/test.conf", text)
        self.machine.do("systemctl", "daemon-reload")
        return self

    def write_config(self) -> None:
        """Write the config anew."""
        self.machine.write(self.config, json.dumps({"name": self.name, "servers": {"app": self.server}}))

    def shut_gate(self) -> None:
        """From here on only the first worker to come starts, and after the start of the service none."""
        self.machine.do("install", "-d", "-o", USER, self.state)
        if self.show("ActiveState") == ["active"]:
            self.machine.write(f"{self.state}/passed", "")
        self.machine.write(f"{self.state}/gate", "")

    def open_gate(self) -> None:
        """Let them all through."""
        self.machine.do("rm", f"{self.state}/gate")

    def systemctl(self, verb: str, *options: str) -> str:
        """Run systemctl on the service; it has to succeed."""
        done = self.machine.run("systemctl", verb, *options, self.service)
        assert done.status == 0, f"{done}\n{self.journal()}"
        return done.out

    def show(self, *properties: str) -> list[str]:
        """What systemd knows of the service."""
        text = self.machine.do("systemctl", "show", self.service, f"--property={','.join(properties)}")
        found = dict(line.split("=", 1) for line in text.splitlines())
        return [found[name] for name in properties]

    def wait(self, *wanted: str, properties: tuple[str, ...]) -> None:
        """Wait until the properties have these values."""
        try:
            patiently(lambda: self.show(*properties) == list(wanted), f"{properties} to be {wanted}")
        except AssertionError:
            raise AssertionError(f"{properties}: found {self.show(*properties)}, {wanted=}\n{self.journal()}") from None

    def journal(self) -> str:
        """What the service and systemd said about it."""
        return self.machine.run("journalctl", "--no-pager", "--output=cat", f"--unit={self.service}").out

    def command(self, *arguments: str) -> Done:
        """Run another gym-supervise command on this config, as root."""
        return self.machine.run("env", f"PYTHONPATH={REPO}", COMMAND, arguments[0], self.config, *arguments[1:])

    def status(self) -> dict[str, Any]:
        """`status --json`."""
        done = self.command("status", "--json")
        assert done.status == 0, done
        found: dict[str, Any] = json.loads(done.out)
        return found

    def workers(self) -> list[dict[str, Any]]:
        """Its workers."""
        found: list[dict[str, Any]] = self.status()["servers"]["app"]["workers"]
        return found

    @property
    def facts(self) -> dict[str, Any]:
        """What the running supervisor says of itself."""
        found: dict[str, Any] = json.loads(self.machine.do("cat", f"/run/gym-supervise/{self.name}/supervisor.json"))
        return found

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, _, port = self.status()["servers"]["app"]["bind"].rpartition(":")
        return host, int(port)

    def processes(self) -> list[str]:
        """All that the services' user runs."""
        return self.machine.run("ps", "-u", USER, "-o", "pid=,args=").out.splitlines()

    def left(self) -> list[str]:
        """Processes, shared memory and sockets that are there though nothing runs."""
        names = self.machine.run("find", "/dev/shm", "/run/gym-supervise", "-name", "*gsv*", "-o", "-type", "s").out
        return [*self.processes(), *names.splitlines()]

    def remove(self) -> None:
        """Stop it and forget it, whatever state it is in."""
        if self.machine.run("test", "-e", f"{UNITS}/{self.socket}").status == 0:
            self.machine.run("systemctl", "stop", self.socket)
        self.machine.run("systemctl", "stop", self.service)
        self.machine.run("systemctl", "reset-failed", self.service, self.socket)
        self.machine.run("rm", "-rf", f"{UNITS}/{self.service}", f"{UNITS}/{self.service}.d", f"{UNITS}/{self.socket}")
        self.machine.run("systemctl", "daemon-reload")


def patiently(condition: Callable[[], Any], what: str, seconds: float = 30) -> None:
    """Wait until a condition holds that costs a process each time: a busy loop would slow down what it waits for."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)


def ask(address: tuple[str, int], session: str | None = None, seconds: float = 30) -> int:
    """One request on a connection of its own: the pid of the worker that served it."""
    connection = http.client.HTTPConnection(*address, timeout=seconds)
    try:
        connection.request("GET", "/", headers={"connection": "close", **({"x-session": session} if session else {})})
        reply = connection.getresponse()
        body = reply.read()
        assert reply.status == 200, (reply.status, body)
        return int(body)
    finally:
        connection.close()


def free_address() -> tuple[str, int]:
    """An address of this machine's loopback that nobody else is likely to take before it is used."""
    with socket.socket() as probe:
        probe.bind((f"127.{os.getpid() % 250 + 2}.0.1", 0))
        host, port = probe.getsockname()
        return host, port


@contextlib.contextmanager
def clients(address: tuple[str, int]) -> Iterator[list[int | str]]:
    """Somebody who connects all the time; the list has each answer: a worker's pid, or what went wrong."""
    answers: list[int | str] = []
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            try:
                answers.append(ask(address))
            except (OSError, http.client.HTTPException, AssertionError) as error:
                answers.append(repr(error))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        over.set()
        for thread in threads:
            thread.join()
