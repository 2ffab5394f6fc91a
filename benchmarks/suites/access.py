"""What an access line costs, written and not, beside what uvicorn's own line costs with its arguments and format.

The line's own part of a request is CPU time of this process, with a file as its reader; a whole request is measured on
a service of one worker.
"""

from __future__ import annotations

import logging
import logging.config
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn.config
from uvicorn.protocols.utils import get_client_addr, get_path_with_query_string

from benchmarks.clients.raw import connect, one_client, request_bytes
from benchmarks.harness.processes import last_core, pinned
from benchmarks.harness.rows import Case, Key, Opened, Row, Sample, Suite, difference, single
from benchmarks.servers.supervised import supervised
from benchmarks.servers.variant import Variant
from server_adapters.registry import build
from shmclaims import Segment
from supervisor.config import LogConfig
from supervisor.logs import lines as logs
from supervisor.routing.access import AccessLog

CALLS = 2000
REQUESTS = 500
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
WRITTEN, UNWRITTEN = "lines", "no lines"


async def _nothing(_message: Any = None) -> Any:
    return None


class Lines:
    """The calls that a request makes of its access line."""

    def __init__(self, segment: Segment) -> None:
        self._log = AccessLog(build({"preset": "none"}, None, server="x"), segment.ring, server="x", index=0, me=1)
        self._start = {"type": "http.response.start", "status": 200, "headers": []}
        self._body = {"type": "http.response.body", "body": b"ok"}

    def ours(self) -> None:
        """One request's."""
        line = self._log.begin(_nothing, _nothing)
        if line is None:
            return
        line.send(self._start).close()  # type: ignore[attr-defined]  # a coroutine
        line.send(self._body).close()  # type: ignore[attr-defined]
        line.serve_here(SESSION)
        self._log.end(line, SCOPE, failed=False)

    def uvicorns(self) -> None:
        """The same of uvicorn."""
        address, target = get_client_addr(SCOPE), get_path_with_query_string(SCOPE)  # type: ignore[arg-type]
        logging.getLogger("uvicorn.access").info('%s - "%s %s HTTP/%s" %d', address, "POST", target, "1.1", 200)

    def written(self, form: str) -> Sample:
        """With our logging in `form`; `none` has a level at which no line is written."""
        with _stderr_to_file():
            logs.configure(LogConfig(format="json" if form == "json" else "console"), role="x.0")
            if form == "none":
                logging.getLogger("uvicorn.access").setLevel(logging.WARNING)
            try:
                return _cost(self.ours)
            finally:
                logs.shut_down()

    def written_by_uvicorn(self) -> Sample:
        """With uvicorn's logging."""
        with _stderr_to_file():
            logging.config.dictConfig(uvicorn.config.LOGGING_CONFIG)
            logging.getLogger("uvicorn.access").handlers[0].setStream(sys.stderr)  # type: ignore[attr-defined]
            return _cost(self.uvicorns)


def _cost(call: Callable[[], object]) -> Sample:
    """CPU seconds of one call."""
    before = time.thread_time()
    for _ in range(CALLS):
        call()
    return {"cpu": (time.thread_time() - before) / CALLS}


@contextmanager
def _stderr_to_file() -> Iterator[None]:
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


@contextmanager
def opened(wanted: frozenset[Key]) -> Iterator[Opened]:
    """The line alone in this process, and two services."""
    core = last_core()
    found = Opened()
    with ExitStack() as stack:
        segment = Segment.create({}, max_sessions=100)
        stack.callback(segment.close)
        stack.callback(segment.unlink)
        lines = Lines(segment)
        found.cases += [Case("line", form, partial(lines.written, form)) for form in ("console", "json", "none")]
        found.cases.append(Case("line", "uvicorn", lines.written_by_uvicorn))
        for name in (WRITTEN, UNWRITTEN):
            if ("request", name) in wanted:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                options = {"access_log": name == WRITTEN, "timeout_keep_alive": 600}
                variant = supervised(folder, "tiny", workers=1, core=core, uvicorn=options)
                stack.callback(variant.stop)
                sock = stack.enter_context(connect(variant.port))

                def ask(variant: Variant = variant, sock: Any = sock) -> Sample:
                    with pinned(core):
                        before = variant.cpu()
                        latencies = one_client(sock, request_bytes("GET", "/echo"), REQUESTS)
                        used = variant.cpu() - before
                    return {"p50": statistics.median(latencies), "cpu": used / REQUESTS}

                found.cases.append(Case("request", name, ask))
        yield found


ROWS = (
    Row("line-console", "an access line, console", "us", single("cpu", ("line", "console"), times=1e6)),
    Row("line-json", "an access line, json", "us", single("cpu", ("line", "json"), times=1e6)),
    Row("line-none", "none: log_level warning", "us", single("cpu", ("line", "none"), times=1e6)),
    Row("line-uvicorn", "uvicorn's own line", "us", single("cpu", ("line", "uvicorn"), times=1e6)),
    Row(
        "line-request",
        "what lines add to a whole request, CPU of all processes",
        "us",
        difference("cpu", ("request", WRITTEN), ("request", UNWRITTEN), times=1e6),
    ),
)

SUITE = Suite("access", "what an access line costs", 12, ROWS, opened)
