"""Servers for the real clients: plain uvicorn with several workers, and gym-supervise, in a client's environment."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clients.environments import CHROMIUM, FOLDER, command, python
from clients.rows import Row
from whole.harness import REPO, Service, eventually

PLAY = Path(__file__).parent / "play"
WORKERS = 4


@contextlib.contextmanager
def plain(row: Row, folder: Path) -> Iterator[str]:
    """`uvicorn --workers 4`; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ["-m", "uvicorn", row.app, "--workers", str(WORKERS), "--port", str(port), "--log-level", "warning"]
    environment = {**os.environ, **row.options.get("env", {})}
    with (folder / "plain.log").open("wb") as log:
        process = subprocess.Popen(
            [python(row.environment), *arguments],
            cwd=REPO,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:

        def listens() -> bool:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return True
            return False

        eventually(listens, "plain workers", 60)
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def supervised(row: Row, folder: Path) -> Iterator[Service]:
    """`gym-supervise serve` with four workers and the row's preset; its log is JSON."""
    service = Service(
        folder,
        row.app,
        program=command(row.environment),
        log={"format": "json"},
        chdir=str(REPO),
        env=row.options.get("env", {}),
        workers=WORKERS,
        timeouts={"graceful_seconds": 2},
        affinity={"preset": row.preset, **row.options.get("affinity", {})},
    )
    service.start(ready=False)
    try:
        service.wait_ready(120)  # some apps take long to import
        yield service
        assert service.stop() == 0, service.log.read_text()[-4000:]
    finally:
        left = service.cleanup()
    assert left == []


def play(row: Row, url: str, mode: str, *, seconds: float = 40) -> list[str | None]:
    """Have the client play; for each session None, or what was wrong with it, such as that it took longer."""
    command, environment = player(row, url, mode)
    environment |= {"SESSION_SECONDS": str(seconds), "SESSIONS_AT_ONCE": str(row.at_once)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=row.timeout, env=environment, check=False)
    lines = done.stdout.splitlines()
    assert lines, done.stderr[-4000:]
    found: list[str | None] = json.loads(lines[-1])
    return found


def player(row: Row, url: str, mode: str, *further: str) -> tuple[list[str], dict[str, str]]:
    """The client's command and environment."""
    script, *more = row.player
    arguments = [str(PLAY / script), url, str(row.sessions), mode, *more, *further]
    if script.endswith(".mjs"):
        return ["node", *arguments], {**os.environ, "NODE_PATH": str(FOLDER / "node" / "node_modules")}
    return [python(row.environment), "-W", "ignore", *arguments], {**os.environ, "CHROMIUM": CHROMIUM or ""}


def access_lines(service: Service) -> list[dict[str, Any]]:
    """What the access lines of a service say."""
    found = []
    for line in service.log.read_text().splitlines():
        with contextlib.suppress(ValueError):
            content = json.loads(line)
            if content.get("logger") == "uvicorn.access":
                found.append(content)
    return found


def accepting_workers(lines: list[dict[str, Any]]) -> dict[str, set[int]]:
    """By the shown part of a session's id: the workers that accepted its requests. Files of pages are no sessions."""
    found: dict[str, set[int]] = {}
    for line in lines:
        if line.get("session") and not line["session"].startswith(("media/", "@f")):
            found.setdefault(line["session"], set()).add(line["worker"])
    return found
