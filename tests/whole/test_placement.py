"""Placement `least_sessions`: also when a thousand starts come at once, and while workers boot, drain or die."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Callable

from whole.harness import Service, eventually

from shmclaims import RowState

Make = Callable[..., Service]
APP = "whole.apps:gym"
CONNECTIONS = 200
SEED = b"POST /seed_session HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\n{}"


def started(service: Service, count: int) -> Counter[int]:
    """Start so many sessions over 200 connections at once; how many each worker's pid got."""

    async def client(starts: int) -> list[int]:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        pids = []
        for _ in range(starts):
            writer.write(SEED)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            pids.append(json.loads(await reader.readexactly(length))["pid"])
        writer.close()
        return pids

    async def all_at_once() -> list[list[int]]:
        return await asyncio.gather(*(client(count // CONNECTIONS) for _ in range(CONNECTIONS)))

    return Counter(pid for pids in asyncio.run(asyncio.wait_for(all_at_once(), 60)) for pid in pids)


def open_sessions(service: Service) -> list[int]:
    """Of each ready worker."""
    return [row.sessions for row in service.rows().values() if row.state is RowState.READY]


def assert_even(service: Service, total: int) -> None:
    """No ready worker has more than two sessions more than another; together they have `total`."""
    counts = open_sessions(service)
    assert sum(counts) == total, counts
    assert max(counts) - min(counts) <= 2, counts


def test_a_thousand_starts_at_once_are_even(service: Make) -> None:
    """And what the rows count is what the workers got; a second thousand keeps it so."""
    running = service(APP).start()
    found = started(running, 1000)
    assert sorted(found.values()) == sorted(open_sessions(running))
    assert_even(running, 1000)
    started(running, 1000)
    assert_even(running, 2000)


def test_they_are_even_again_after_a_death(service: Make) -> None:
    """One of four is killed while starts come; its successor gets what it takes to be level with the others."""
    running = service(APP).start()
    started(running, 400)
    victim = next(iter(running.rows()))
    os.kill(victim, signal.SIGKILL)
    running.wait_restarted()
    left = sum(open_sessions(running))
    assert 290 <= left <= 310
    started(running, 400)
    assert_even(running, left + 400)


def test_they_are_even_again_after_a_boot(service: Make) -> None:
    """Two workers more: new sessions go to them until they have as many."""
    running = service(APP, workers=2).start()
    started(running, 200)
    assert running.run("scale", "app", "4").returncode == 0
    running.workers = 4
    running.wait_ready()
    started(running, 600)
    assert_even(running, 800)


def test_one_that_drains_gets_none(service: Make) -> None:
    """One of three drains, and its successor comes, while a thousand starts come: the ready ones end up level."""
    running = service(APP, workers=3).start()
    started(running, 200)
    owner, row = next(iter(running.rows().items()))
    assert running.run("drain", str(row.index)).returncode == 0
    eventually(lambda: running.rows()[owner].state is RowState.DRAINING, "the worker drains")
    before = running.rows()[owner].sessions
    assert owner not in started(running, 600)
    assert running.rows()[owner].sessions == before
    eventually(lambda: len(open_sessions(running)) == 3, "its successor")
    started(running, 600)
    assert_even(running, 1400 - before)


def test_one_that_stalls_gets_none(service: Make) -> None:
    """One of three stands still: once its heart has not beaten for a while, starts go to the others."""
    running = service(APP, workers=3).start()
    victim = next(iter(running.rows()))
    os.kill(victim, signal.SIGSTOP)
    try:
        beat = running.rows()[victim].heartbeat_at
        others = [pid for pid in running.rows() if pid != victim]
        eventually(lambda: all(running.rows()[pid].heartbeat_at > beat + 2000 for pid in others), "beats of the others")
        found = started(running, 400)
    finally:
        os.kill(victim, signal.SIGCONT)
    assert set(found) == set(others)
