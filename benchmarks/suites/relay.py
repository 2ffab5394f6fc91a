"""A request that another worker answers beside one that the accepting worker answers, and the router's own cost.

One connection, or 32, to the first of two workers; the request's session is that worker's own (local), or the other
one's: forwarded, in a service whose workers hand such a connection over, so that only its first requests are relayed;
or relayed, in one whose workers do not, which is what connections get that mix sessions. The same app on one plain
uvicorn worker tells what the router costs. All processes and the client share one core.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.clients.raw import EchoSocket, connect, many_clients, one_client, request_bytes
from benchmarks.clients.sessions import Workers, new_cookie
from benchmarks.harness.processes import last_core, pinned
from benchmarks.harness.rows import Case, Figure, Key, Mark, Opened, Row, Sample, Suite, difference, ratio
from benchmarks.servers import relaying
from benchmarks.servers.plain import plain
from benchmarks.servers.supervised import supervised
from benchmarks.servers.tiny import EVENTS
from benchmarks.servers.variant import Variant

CLIENTS = 32
BODY = b'{"count": 1, "text": "' + b"x" * 176 + b'"}'
LOCAL, FORWARDED, RELAYED, PLAIN = "local", "forwarded", "relayed", "plain"
MICRO = 1e6


@dataclass(frozen=True)
class Asked:
    """What a case asks: `count` requests in a round, over `clients` connections."""

    name: str
    app: str
    path: str
    count: int
    clients: int = 1
    body: bytes = BODY
    session: bool = True

    def request(self, cookie: str) -> bytes:
        """The request, whole."""
        if not self.session:
            return request_bytes("GET", self.path)
        return request_bytes("POST", self.path, cookie=cookie, body=self.body)


ASKED = (
    Asked("tiny, 1 client", "tiny", "/echo", 400),
    Asked("tiny, 32 clients", "tiny", "/echo", 1600, clients=CLIENTS),
    Asked("tiny, no session", "tiny", "/echo", 400, session=False),
    Asked("fastapi, 1 client", "gym", "/increment", 200),
    Asked("1 MiB up", "tiny", "/up", 20, body=b"x" * (1 << 20)),
    Asked("1 MiB down", "tiny", "/down", 20),
    Asked("events at once", "tiny", "/sse", 5),
    Asked("events one by one", "tiny", "/slow-sse", 5),
)
HANDS = "hands connections over"
ECHO = "websocket echo"
ECHOES = 300


def _forwarded_p50(case: str, how: str = FORWARDED) -> Figure:
    return ratio("p50", (case, how), (case, LOCAL))


def _added(case: str, times: float = MICRO, how: str = FORWARDED) -> Figure:
    return difference("cpu", (case, how), (case, LOCAL), times=times)


def _router(case: str) -> Figure:
    return difference("cpu", (case, LOCAL), (case, PLAIN), times=MICRO)


ROWS = (
    Row(
        "forwarded-tiny",
        "forwarded / local p50, tiny app, one client",
        "",
        _forwarded_p50("tiny, 1 client"),
        Mark(2.1, 1.6),
    ),
    Row(
        "forwarded-fastapi",
        "forwarded / local p50, FastAPI with SessionMiddleware",
        "",
        _forwarded_p50("fastapi, 1 client"),
        Mark(1.35, 1.15),
    ),
    Row(
        "forwarded-cpu-1",
        "CPU added per forwarded request, tiny app, 1 client",
        "us",
        _added("tiny, 1 client"),
        Mark(48, 26),
    ),
    Row(
        "forwarded-cpu-32",
        "CPU added per forwarded request, tiny app, 32 clients",
        "us",
        _added("tiny, 32 clients"),
        Mark(22, 11),
    ),
    Row(
        "forwarded-cpu-fastapi", "CPU added per forwarded request, FastAPI, 1 client", "us", _added("fastapi, 1 client")
    ),
    Row(
        "router-session",
        "router's CPU on a local request with a session, tiny app",
        "us",
        _router("tiny, 1 client"),
        Mark(12, 6),
    ),
    Row(
        "router-session-32",
        "router's CPU on a local request with a session, 32 clients",
        "us",
        _router("tiny, 32 clients"),
    ),
    Row(
        "router-none",
        "router's CPU on a request without a session, tiny app",
        "us",
        _router("tiny, no session"),
        Mark(3, 1),
    ),
    Row("up", "1 MiB up, forwarded / local", "", _forwarded_p50("1 MiB up"), Mark(2.2, 1.8)),
    Row("down", "1 MiB down, forwarded / local", "", _forwarded_p50("1 MiB down"), Mark(1.7, 1.5)),
    Row(
        "events",
        "SSE of 1,000 small events at once: CPU per event over local",
        "us",
        _added("events at once", MICRO / EVENTS, RELAYED),
        Mark(1.5, 0.5),
    ),
    Row(
        "events-one-by-one",
        "SSE of 1,000 small events one by one: the same",
        "us",
        _added("events one by one", MICRO / EVENTS, RELAYED),
        Mark(1.5, 0.5),
    ),
    Row("websocket", "WebSocket echo through another worker / local p50", "", _forwarded_p50(ECHO), Mark(2.1, 1.1)),
    Row(
        "relayed-tiny",
        "relayed / local p50, tiny app, one client",
        "",
        _forwarded_p50("tiny, 1 client", RELAYED),
        Mark(2.1, 1.6),
    ),
    Row(
        "relayed-fastapi",
        "relayed / local p50, FastAPI with SessionMiddleware",
        "",
        _forwarded_p50("fastapi, 1 client", RELAYED),
        Mark(1.35, 1.15),
    ),
    Row(
        "relayed-cpu-1",
        "CPU added per relayed request, tiny app, 1 client",
        "us",
        _added("tiny, 1 client", how=RELAYED),
        Mark(48, 26),
    ),
    Row(
        "relayed-cpu-32",
        "CPU added per relayed request, tiny app, 32 clients",
        "us",
        _added("tiny, 32 clients", how=RELAYED),
        Mark(22, 11),
    ),
    Row(
        "relayed-cpu-fastapi",
        "CPU added per relayed request, FastAPI, 1 client",
        "us",
        _added("fastapi, 1 client", how=RELAYED),
    ),
    Row("relayed-up", "1 MiB up, relayed / local", "", _forwarded_p50("1 MiB up", RELAYED), Mark(2.2, 1.8)),
    Row("relayed-down", "1 MiB down, relayed / local", "", _forwarded_p50("1 MiB down", RELAYED), Mark(1.7, 1.5)),
    Row("relayed-websocket", "WebSocket echo, relayed / local p50", "", _forwarded_p50(ECHO, RELAYED)),
)


class Service:
    """A running variant with the connections that its cases use."""

    def __init__(self, variant: Variant, core: int | None, *, two_workers: bool) -> None:
        self.variant = variant
        self._core = core
        self._workers = Workers(variant.port, connections=2 * CLIENTS + 2) if two_workers else None
        self._socks: dict[str, list[socket.socket]] = {}  # each variant's own: they may move to the other worker
        if self._workers is None:
            self._socks[PLAIN], self._spare = [connect(variant.port) for _ in range(CLIENTS)], list[socket.socket]()
            self._cookies = {PLAIN: new_cookie()}
        else:
            socks, self._spare = self._workers.socks[2:], self._workers.socks[:2]
            self._socks = {LOCAL: socks[:CLIENTS], FORWARDED: socks[CLIENTS:], RELAYED: socks[CLIENTS:]}
            self._cookies = {LOCAL: self._workers.here} | dict.fromkeys((FORWARDED, RELAYED), self._workers.there)
        self._echoes: dict[str, EchoSocket] = {}

    def ask(self, asked: Asked, variant: str) -> Sample:
        """One case of HTTP."""
        request = asked.request(self._cookies[variant])
        with pinned(self._core):
            before = self.variant.cpu()
            if asked.clients == 1:
                latencies = one_client(self._socks[variant][0], request, asked.count)
            else:
                latencies = many_clients(self._socks[variant], [request] * asked.clients, asked.count)
            used = self.variant.cpu() - before
        return {"p50": statistics.median(latencies), "cpu": used / asked.count}

    def echo(self, variant: str) -> Sample:
        """A WebSocket's messages."""
        if variant not in self._echoes:
            self._echoes[variant] = EchoSocket(self._spare.pop(), "/echo", self._cookies[variant])
        with pinned(self._core):
            before = self.variant.cpu()
            latencies = self._echoes[variant].one_client(32, ECHOES)
            used = self.variant.cpu() - before
        return {"p50": statistics.median(latencies), "cpu": used / ECHOES}

    def close(self) -> None:
        """Close the connections; the variant stays."""
        for socks in self._socks.values():
            for one in socks:
                one.close()
        if self._workers is not None:
            self._workers.close()


@contextlib.contextmanager
def opened(wanted: frozenset[Key]) -> Iterator[Opened]:
    """Start the services that the wanted cases need."""
    core = last_core()
    found = Opened()
    with contextlib.ExitStack() as stack:
        services: dict[tuple[str, str], Service] = {}

        def service(app: str, variant: str) -> Service:
            kind = HANDS if variant in (LOCAL, FORWARDED) else variant
            if (app, kind) not in services:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                if kind == PLAIN:
                    running = plain(folder, app, workers=1, core=core)
                else:
                    env = {relaying.VARIABLE: "1"} if kind == RELAYED else {}
                    running = supervised(folder, app, workers=2, core=core, env=env)
                stack.callback(running.stop)
                services[app, kind] = Service(running, core, two_workers=kind != PLAIN)
                stack.callback(services[app, kind].close)
            return services[app, kind]

        for asked in ASKED:
            for variant in (LOCAL, FORWARDED, RELAYED, PLAIN):
                if (asked.name, variant) in wanted:
                    one = service(asked.app, variant)
                    found.cases.append(Case(asked.name, variant, partial(one.ask, asked, variant)))
        for variant in (LOCAL, FORWARDED, RELAYED):
            if (ECHO, variant) in wanted:
                found.cases.append(Case(ECHO, variant, partial(service("tiny", variant).echo, variant)))
        yield found


SUITE = Suite("relay", "forwarded requests beside local ones, and the router's own cost", 30, ROWS, opened)
