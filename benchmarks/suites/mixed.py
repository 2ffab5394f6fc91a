"""Four workers, FastAPI behind SessionMiddleware, sessions mixed over 32 connections: what affinity costs, and what it
costs with the means of today. CPU is that of all processes of a variant.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.clients import wrk
from benchmarks.clients.players import cookies_of_new_sessions
from benchmarks.harness.rows import Case, Key, Mark, Opened, Row, Sample, Suite, Unmeasurable, difference, ratio, single
from benchmarks.servers.aiohttp_relay import NAME as RELAY
from benchmarks.servers.aiohttp_relay import aiohttp_relay
from benchmarks.servers.plain import plain
from benchmarks.servers.proxies import haproxy_cookie, haproxy_stick, nginx
from benchmarks.servers.supervised import NAME as OURS
from benchmarks.servers.supervised import supervised
from benchmarks.servers.variant import Variant

WORKERS = 4
CLIENTS = 32
SESSIONS = 128
SECONDS = 2
STARTS_AT_ONCE = 3
APP = "gym"
PLAIN = "plain"
CASE = "mixed"

VARIANTS: dict[str, Callable[[Path], Variant]] = {
    PLAIN: lambda folder: plain(folder, APP, workers=WORKERS),
    OURS: lambda folder: supervised(folder, APP, workers=WORKERS),
    "haproxy-stick": lambda folder: haproxy_stick(folder, APP, workers=WORKERS),
    "haproxy-cookie": lambda folder: haproxy_cookie(folder, APP, workers=WORKERS),
    "nginx": lambda folder: nginx(folder, APP, workers=WORKERS),
    RELAY: lambda folder: aiohttp_relay(folder, workers=WORKERS),
    "plain, one": lambda folder: plain(folder, APP, workers=1, name="plain-one"),
}


def load(variant: Variant, cookies: list[str]) -> Sample:
    """Two seconds of it."""
    before, relayed = variant.cpu(), variant.relayed() if variant.relayed else 0
    sample = wrk.mixed(variant.port, cookies, clients=CLIENTS, seconds=SECONDS)
    sample["cpu"] = (variant.cpu() - before) / sample["requests"]
    sample["rps"] = sample["requests"] / sample["seconds"]
    if variant.relayed:
        sample["relayed"] = (variant.relayed() - relayed) / sample["requests"]
    return sample


def begin(name: str, folder: Path) -> tuple[Variant, list[str]] | Unmeasurable:
    """Start a variant and its sessions, or say why not."""
    try:
        variant = VARIANTS[name](folder)
    except Unmeasurable as error:
        return error
    return variant, list(cookies_of_new_sessions(variant.port, SESSIONS))


@contextlib.contextmanager
def opened(wanted: frozenset[Key]) -> Iterator[Opened]:
    """All variants at once, each with its sessions."""
    found = Opened()
    names = [name for name in VARIANTS if (CASE, name) in wanted]
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(STARTS_AT_ONCE) as threads:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in names]
        for name, begun in zip(names, threads.map(begin, names, folders), strict=True):
            if isinstance(begun, Unmeasurable):
                found.skipped[name] = str(begun)
                continue
            variant, cookies = begun
            stack.callback(variant.stop)
            found.cases.append(Case(CASE, name, partial(load, variant, cookies)))
        yield found


def _rows() -> Iterator[Row]:
    base = (CASE, PLAIN)
    for name in VARIANTS:
        ours, key = name == OURS, (CASE, name)
        yield Row(f"mixed-throughput-{name}", "requests a second", "/s", single("rps", key), variant=name)
        yield Row(f"mixed-cpu-{name}", "CPU per request", "us", single("cpu", key, times=1e6), variant=name)
        yield Row(f"mixed-p50-{name}", "p50", "ms", single("p50", key, times=1e3), variant=name)
        if name != PLAIN:
            yield Row(
                f"mixed-added-{name}",
                "CPU over plain workers",
                "us",
                difference("cpu", key, base, times=1e6),
                Mark(60, 35) if ours else None,
                variant=name,
            )
            yield Row(
                f"mixed-ratio-{name}",
                "throughput against plain workers",
                "",
                ratio("rps", key, base),
                Mark(0.8, 0.9, best="most") if ours else None,
                variant=name,
            )
        if ours:
            yield Row(
                "mixed-relayed", "part of the requests that was relayed", "", single("relayed", key), variant=name
            )


SUITE = Suite(CASE, "4 workers, FastAPI, 32 clients, sessions mixed over the connections", 5, tuple(_rows()), opened)
