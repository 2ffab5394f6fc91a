"""A relayed request beside a local one: latency, CPU of all processes, large bodies, event streams.

    python -m benchmarks.relay [--rounds N]

A uvicorn server runs a request itself, or relays it to a second process. Every process is pinned to one core, where
the machine allows it, so that a latency is the sum of the work and not a race of cores. Rounds are paired: each
measures both variants of each case, in random order, and gives one ratio or one difference; the table has their
medians and quartiles. The figures go to benchmarks/out/relay.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.relay_clients import many_clients, one_client
from benchmarks.relay_servers import settle

OUT = Path(__file__).parent / "out"
BODY = b'{"count": 1, "text": "' + b"x" * 176 + b'"}'
VARIANTS = ("local", "relayed")


class Sample(msgspec.Struct, frozen=True):
    """One variant in one round: median latency of a request, CPU of all its processes per request, both seconds."""

    p50: float
    cpu: float


class Case(msgspec.Struct, frozen=True):
    """What is asked of the servers, and how often in a round."""

    name: str
    app: str
    route: str
    clients: int
    requests: int
    body: bytes = BODY


class Mark(msgspec.Struct, frozen=True):
    """A row of the table: `value` of a round's two samples, with the marks of the relay's design page beside it."""

    name: str
    case: str
    unit: str
    value: Callable[[Sample, Sample], float]
    reach: float
    stretch: float | None


CASES = (
    Case("tiny-1", "tiny", "echo", 1, 400),
    Case("tiny-32", "tiny", "echo", 32, 1600),
    Case("fastapi-1", "fastapi", "echo", 1, 200),
    Case("fastapi-32", "fastapi", "echo", 32, 640),
    Case("up", "tiny", "up", 1, 20, b"x" * (1 << 20)),
    Case("down", "tiny", "down", 1, 20),
    Case("sse", "tiny", "sse", 1, 5),
    Case("slow-sse", "tiny", "slow-sse", 1, 5),
)
EVENTS = 1000


def _ratio(local: Sample, relayed: Sample) -> float:
    return relayed.p50 / local.p50


def _added(local: Sample, relayed: Sample) -> float:
    return (relayed.cpu - local.cpu) * 1e6


def _added_per_event(local: Sample, relayed: Sample) -> float:
    return _added(local, relayed) / EVENTS


MARKS = (
    Mark("p50 relayed / local, tiny app", "tiny-1", "", _ratio, 2.1, 1.6),
    Mark("CPU added per request, 1 client", "tiny-1", "us", _added, 48, 26),
    Mark("CPU added per request, 32 clients", "tiny-32", "us", _added, 22, 11),
    Mark("p50 relayed / local, FastAPI + SessionMiddleware", "fastapi-1", "", _ratio, 1.35, 1.15),
    Mark("CPU added per request, FastAPI, 32 clients", "fastapi-32", "us", _added, 60, 35),
    Mark("1 MiB up, p50 relayed / local", "up", "", _ratio, 3.0, 1.8),
    Mark("1 MiB down, p50 relayed / local", "down", "", _ratio, 2.2, 1.5),
    Mark("SSE of 1,000 events at once, relayed / local", "sse", "", _ratio, 1.5, None),
    Mark("CPU added per event", "sse", "us", _added_per_event, 2.7, 0.5),
    Mark("SSE of 1,000 events one by one, relayed / local", "slow-sse", "", _ratio, 1.5, None),
    Mark("CPU added per event, one by one", "slow-sse", "us", _added_per_event, 2.7, 0.5),
)


class Servers:
    """A front and an owner of one app."""

    def __init__(self, app: str, folder: str, core: int | None) -> None:
        path = os.path.join(folder, f"{app}.sock")
        self._processes: list[subprocess.Popen[str]] = []
        self._start("owner", app, path, core)
        self.port = int(self._start("front", app, path, core))

    def cpu(self) -> float:
        """Seconds of CPU that both processes have used."""
        # The clock of another process: MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED) of the kernel's posix-timers.h.
        return sum(time.clock_gettime((~process.pid << 3) | 2) for process in self._processes)

    def stop(self) -> None:
        """End both."""
        for process in self._processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _start(self, role: str, app: str, path: str, core: int | None) -> str:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.relay_servers", role, app, path],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        self._processes.append(process)
        if core is not None:
            os.sched_setaffinity(process.pid, {core})
            os.sched_setscheduler(process.pid, os.SCHED_OTHER, os.sched_param(0))
        assert process.stdout is not None
        return process.stdout.readline().strip()


def request_bytes(case: Case, variant: str) -> bytes:
    """The request of `case`, whole."""
    head = (
        f"POST /{variant}/{case.route} HTTP/1.1\r\nhost: 127.0.0.1:8000\r\nuser-agent: benchmark/1.0\r\n"
        "accept: */*\r\naccept-encoding: gzip, deflate\r\ncontent-type: application/json\r\n"
        "cookie: session=eyJpZCI6ICIwMTIzNDU2Nzg5YWJjZGVmIn0=.aS1xYw.0123456789abcdefghijklmnopq\r\n"
        f"content-length: {len(case.body)}\r\n\r\n"
    )
    return head.encode() + case.body


def measure(servers: Servers, case: Case, variant: str) -> Sample:
    """One variant of one case."""
    request = request_bytes(case, variant)
    before = servers.cpu()
    if case.clients == 1:
        latencies = one_client(servers.port, request, case.requests)
    else:
        latencies = uvloop.run(many_clients(servers.port, request, case.clients, case.requests))
    return Sample(statistics.median(latencies), (servers.cpu() - before) / len(latencies))


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """First quartile, median, third quartile."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


@contextlib.contextmanager
def pinned() -> Iterator[int | None]:
    """Pin this process to one core, and say which; None: it cannot be."""
    before = os.sched_getaffinity(0)
    policy = os.sched_getscheduler(0)
    core = max(before)
    try:
        os.sched_setaffinity(0, {core})
        # A client of the batch class does not interrupt the server that wakes it: a reply's head and body are two
        # writes, and whether the first one hands the core over is chance, and 25 us.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError:
        yield None
        return
    try:
        yield core
    finally:
        os.sched_setscheduler(0, policy, os.sched_param(0))
        os.sched_setaffinity(0, before)


def run(rounds: int, cases: tuple[Case, ...] = CASES) -> dict[str, dict[str, list[Sample]]]:
    """Samples by case and variant, one a round."""
    samples: dict[str, dict[str, list[Sample]]] = {case.name: {v: [] for v in VARIANTS} for case in cases}
    settled = settle()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack, pinned() as core:
        servers: dict[str, Servers] = {}
        for app in sorted({case.app for case in cases}):
            servers[app] = Servers(app, folder, core)
            stack.callback(servers[app].stop)
        plan = [(case, variant) for case in cases for variant in VARIANTS]
        for case, variant in plan:  # warm-up
            measure(servers[case.app], case, variant)
        for _ in range(rounds):
            random.shuffle(plan)
            for case, variant in plan:
                samples[case.name][variant].append(measure(servers[case.app], case, variant))
    settled.clear()
    return samples


def report(samples: dict[str, dict[str, list[Sample]]]) -> list[dict[str, Any]]:
    """One row for each mark whose case was run."""
    rows = []
    for mark in MARKS:
        if mark.case in samples:
            pairs = zip(samples[mark.case]["local"], samples[mark.case]["relayed"], strict=True)
            low, middle, high = quartiles([mark.value(local, relayed) for local, relayed in pairs])
            rows.append(
                {
                    "what": mark.name,
                    "unit": mark.unit,
                    "median": middle,
                    "quartiles": [low, high],
                    "reach": mark.reach,
                    "stretch": mark.stretch,
                }
            )
    return rows


def show(rows: list[dict[str, Any]], samples: dict[str, dict[str, list[Sample]]]) -> None:
    """The table, marks beside the figures."""
    table = Table(title="the relay beside a local request: median (quartiles) of paired rounds")
    for column in ("what", "measured", "reach", "stretch"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for row in rows:
        low, high = row["quartiles"]
        colour = "green" if row["median"] <= row["reach"] else "red"
        unit = f" {row['unit']}" if row["unit"] else ""
        stretch = "" if row["stretch"] is None else f"{row['stretch']:g}{unit}"
        table.add_row(
            row["what"],
            f"[{colour}]{row['median']:.2f}[/] ({low:.2f} to {high:.2f}){unit}",
            f"{row['reach']:g}{unit}",
            stretch,
        )
    console = Console()
    console.print(table)
    for name, variants in samples.items():
        parts = [
            f"{variant} p50 {statistics.median(s.p50 for s in found) * 1e6:.1f} us,"
            f" CPU {statistics.median(s.cpu for s in found) * 1e6:.1f} us"
            for variant, found in variants.items()
        ]
        console.print(f"  {name}: " + "; ".join(parts), highlight=False)


def main(argv: list[str] | None = None) -> None:
    """Measure, print, write the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.relay", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--cases", nargs="*", help="only these: " + " ".join(case.name for case in CASES))
    given = parser.parse_args(argv)
    cases = tuple(case for case in CASES if not given.cases or case.name in given.cases)
    samples = run(given.rounds, cases)
    rows = report(samples)
    show(rows, samples)
    OUT.mkdir(exist_ok=True)
    result = {"benchmark": "relay", "python": sys.version.split()[0], "rounds": given.rounds, "rows": rows}
    (OUT / "relay.json").write_text(json.dumps(result | {"samples": msgspec.to_builtins(samples)}, indent=1))


if __name__ == "__main__":
    main()
