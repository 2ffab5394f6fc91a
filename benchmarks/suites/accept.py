"""How connections spread over four workers, and what one costs: the product's listener beside uvicorn's and others.

at once   100 connections of one client, opened before any is answered, each with one request; the sample has the most
          and the fewest at a worker, and the time until all are answered
in turn   a connection for each request, one after the other
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.clients.raw import ask, connect, request_bytes
from benchmarks.harness.rows import Case, Key, Mark, Opened, Row, Sample, Suite, Unmeasurable, single
from benchmarks.servers.listeners import other_listeners
from benchmarks.servers.plain import plain
from benchmarks.servers.supervised import NAME as OURS
from benchmarks.servers.supervised import supervised
from benchmarks.servers.variant import Variant

WORKERS = 4
CONNECTIONS = 100
IN_TURN = 100
TIMEOUT_SECONDS = 10.0
SETTLE_SECONDS = 0.05  # until the workers have seen that the last round's connections are gone
AT_ONCE, TURN = "at once", "in turn"
WHOAMI = request_bytes("GET", "/whoami")

VARIANTS: dict[str, Callable[[Path], Variant]] = {
    OURS: lambda folder: supervised(folder, "tiny", workers=WORKERS),
    "plain": lambda folder: plain(folder, "tiny", workers=WORKERS),
    "reuseport": lambda folder: other_listeners(folder, "reuseport", workers=WORKERS),
    "steered": lambda folder: other_listeners(folder, "steered", workers=WORKERS),
}


def at_once(variant: Variant) -> Sample:
    """Open them all, then ask."""
    time.sleep(SETTLE_SECONDS)
    before = variant.cpu()
    start = time.perf_counter()
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        for _ in range(CONNECTIONS):
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", variant.port))
            selector.register(sock, selectors.EVENT_WRITE)
        found: Counter[bytes] = Counter()
        while found.total() < CONNECTIONS:
            ready = selector.select(TIMEOUT_SECONDS)
            if not ready:
                raise Unmeasurable(f"{CONNECTIONS - found.total()} of {CONNECTIONS} connections had no answer")
            for key, events in ready:
                one: socket.socket = key.fileobj  # type: ignore[assignment]
                if events & selectors.EVENT_WRITE:
                    one.send(WHOAMI)
                    selector.modify(one, selectors.EVENT_READ, bytearray())
                else:
                    key.data.extend(one.recv(4096))
                    pid = key.data.partition(b"\r\n\r\n")[2]
                    if pid:  # the head may come alone
                        found[bytes(pid)] += 1
                        selector.unregister(one)
        seconds = time.perf_counter() - start
        used = variant.cpu() - before
    counts = sorted([*found.values(), *[0] * (WORKERS - len(found))])
    return {
        "most": counts[-1],
        "fewest": counts[0],
        "spread": counts[-1] / max(counts[0], 1),
        "seconds": seconds,
        "cpu": used / CONNECTIONS,
    }


def in_turn(variant: Variant) -> Sample:
    """One after the other."""
    before = variant.cpu()
    latencies = []
    for _ in range(IN_TURN):
        start = time.perf_counter()
        with connect(variant.port) as sock:
            ask(sock, WHOAMI)
        latencies.append(time.perf_counter() - start)
    return {"p50": statistics.median(latencies), "cpu": (variant.cpu() - before) / IN_TURN}


@contextlib.contextmanager
def opened(wanted: frozenset[Key]) -> Iterator[Opened]:
    """All variants at once."""
    found = Opened()
    with contextlib.ExitStack() as stack:
        for name, start in VARIANTS.items():
            if not any(key[1] == name for key in wanted):
                continue
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            try:
                variant = start(folder)
            except Unmeasurable as error:
                found.skipped[name] = str(error)
                continue
            stack.callback(variant.stop)
            found.cases.append(Case(AT_ONCE, name, partial(at_once, variant)))
            found.cases.append(Case(TURN, name, partial(in_turn, variant)))
        yield found


def _rows() -> Iterator[Row]:
    for name in VARIANTS:
        once, turn = (AT_ONCE, name), (TURN, name)
        mark = Mark(1.5, 1.1) if name == OURS else None
        yield Row(f"accept-spread-{name}", "100 at once: busiest / idlest", "", single("spread", once), mark, name)
        yield Row(f"accept-most-{name}", "connections at the busiest", "", single("most", once), variant=name)
        yield Row(f"accept-fewest-{name}", "and at the idlest", "", single("fewest", once), variant=name)
        yield Row(f"accept-time-{name}", "time for all", "ms", single("seconds", once, times=1e3), variant=name)
        yield Row(f"accept-cpu-{name}", "CPU per connection", "us", single("cpu", once, times=1e6), variant=name)
        yield Row(f"accept-turn-cpu-{name}", "CPU, one in turn", "us", single("cpu", turn, times=1e6), variant=name)
        yield Row(f"accept-turn-p50-{name}", "p50, one in turn", "us", single("p50", turn, times=1e6), variant=name)


SUITE = Suite("accept", "how connections spread over workers, and what one costs", 20, tuple(_rows()), opened)
