"""What an access line costs, off and on: `python -m benchmarks.access`.

The line's own part of a request is timed in CPU time of this process, with a file as its reader; below it stands what
uvicorn's own line costs, with the arguments, the handler and the format that uvicorn gives it. A whole request is timed
on a service of one worker, over one connection, in turns with and without lines.
"""

from __future__ import annotations

import contextlib
import json
import logging
import logging.config
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn.config
from uvicorn.protocols.utils import get_client_addr, get_path_with_query_string

from server_adapters.registry import build
from shmclaims import Segment
from supervisor.config import LogConfig
from supervisor.logs import lines as logs
from supervisor.routing.access import AccessLog

ROUNDS = 15
CALLS = 2000
REQUESTS = 3000
SESSION = "0f8fad5b-d9cb-469f-a165-70867728950e"
SCOPE: dict[str, Any] = {
    "type": "http",
    "method": "POST",
    "path": "/increment_counter",
    "raw_path": b"/increment_counter",
    "query_string": b"",
    "http_version": "1.1",
    "client": ("127.0.0.1", 41234),
}
OUT = Path(__file__).parent / "out"


def cost(call: Callable[[], object]) -> float:
    """CPU microseconds of a call: the median of some rounds."""
    rounds = []
    for _ in range(ROUNDS):
        before = time.thread_time()
        for _ in range(CALLS):
            call()
        rounds.append((time.thread_time() - before) / CALLS * 1e6)
    return statistics.median(rounds)


async def _nothing(_message: Any = None) -> Any:
    return None


def line_costs() -> Iterator[tuple[str, float]]:
    """Each way to write, or not to write, one line."""
    segment = Segment.create({}, max_sessions=100)
    try:
        log = AccessLog(build({"preset": "none"}, None, server="x"), segment.ring, server="x", index=0, me=1)
        start = {"type": "http.response.start", "status": 200, "headers": []}
        body = {"type": "http.response.body", "body": b"ok"}

        def request() -> None:
            line = log.begin(_nothing, _nothing)
            if line is None:
                return
            line.send(start).close()  # type: ignore[attr-defined]  # a coroutine
            line.send(body).close()  # type: ignore[attr-defined]
            line.serve_here(SESSION)
            log.end(line, SCOPE, failed=False)

        for form in ("console", "json"):
            logs.configure(LogConfig(format=form), role="x.0")
            yield f"a line, {form}", cost(request)
        logging.getLogger("uvicorn.access").setLevel(logging.WARNING)
        yield "no line: log_level warning", cost(request)
        logs.shut_down()
    finally:
        segment.unlink()
        segment.close()
    logging.config.dictConfig(uvicorn.config.LOGGING_CONFIG)
    theirs = logging.getLogger("uvicorn.access")
    theirs.handlers[0].setStream(sys.stderr)  # type: ignore[attr-defined]

    def uvicorns() -> None:
        address, target = get_client_addr(SCOPE), get_path_with_query_string(SCOPE)  # type: ignore[arg-type]
        theirs.info('%s - "%s %s HTTP/%s" %d', address, "POST", target, "1.1", 200)

    yield "uvicorn's own line, for comparison", cost(uvicorns)


@contextlib.contextmanager
def stderr_to_file() -> Iterator[None]:
    """Log lines go to a file meanwhile."""
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def request_cost(*, lines: bool) -> float:
    """Wall microseconds of a request on a service of one worker."""
    with tempfile.TemporaryDirectory() as folder:
        server = {
            "app": "benchmarks.access:app",
            "chdir": str(Path(__file__).parents[1]),
            "bind": f"unix:{folder}/public",
            "affinity": {"preset": "none"},
            "uvicorn": {"access_log": lines},
        }
        config = Path(folder, "config.yaml")
        config.write_text(json.dumps({"runtime_dir": f"{folder}/run", "servers": {"x": server}}))
        command = [sys.executable, "-c", "import gym_supervise; gym_supervise.main()", "serve", str(config)]
        with Path(folder, "log").open("wb") as log, subprocess.Popen(command, stderr=log) as service:
            try:
                return _ask(f"{folder}/public", service)
            finally:
                service.terminate()


def _ask(path: str, service: subprocess.Popen[bytes]) -> float:
    client = socket.socket(socket.AF_UNIX)
    while client.connect_ex(path):
        if service.poll() is not None:
            sys.exit("the service has ended")
        time.sleep(0.02)
    rounds = []
    with client:
        for _ in range(REQUESTS):
            before = time.perf_counter()
            client.sendall(b"POST /increment_counter HTTP/1.1\r\nhost: x\r\n\r\n")
            while not client.recv(4096).endswith(b"ok"):
                pass
            rounds.append((time.perf_counter() - before) * 1e6)
    return statistics.median(rounds)


async def app(scope: Any, _receive: Any, send: Any) -> None:
    """The smallest server."""
    if scope["type"] != "http":
        raise RuntimeError("no lifespan")
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def main() -> None:
    """Print both tables."""
    with stderr_to_file():
        figures = dict(line_costs())
    for name, microseconds in figures.items():
        print(f"{name:<36} {microseconds:8.2f} us CPU")
    turns: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(3):
        for lines in (True, False):
            turns[lines].append(request_cost(lines=lines))
    for lines, rounds in turns.items():
        name = f"a whole request, lines {'on' if lines else 'off'}"
        figures[name] = min(rounds)
        print(f"{name:<36} {figures[name]:8.1f} us")
    OUT.mkdir(exist_ok=True)
    (OUT / "access.json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
