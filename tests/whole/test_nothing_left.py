"""What cannot start a session leaves the table as it was, however much of it comes, and cannot crowd out starts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from whole.harness import Service, eventually

from supervisor.commands import episodes

POOLED = 32

FLOOD: list[tuple[str, str, int]] = [
    ("GET", "/", 200),
    ("HEAD", "/", 200),
    ("GET", "/no_such_route", 404),
    ("POST", "/no_such_route", 404),
    ("POST", "/seed_session/", 307),
    ("OPTIONS", "/verify", 405),
    ("POST", "/read", 405),
    ("POST", "/aggregate_metrics", 200),
    ("POST", "/mcp", 200),
    ("POST", "/mcp/tools", 200),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The conformance suite's server on four workers."""
    folder = tmp_path_factory.mktemp("nothing")
    running = Service(folder, "conformance.app:resources_factory", factory=True).start()
    yield running
    assert running.stop() == 0, running.log.read_text()
    assert running.cleanup() == []


def claims(service: Service) -> dict[str, int]:
    """Who holds what."""
    with service.segment() as segment:
        return {digest: claim.incarnation for digest, claim in segment.table.dump()}


async def flood(url: str, number: int) -> Counter[str]:
    """So many requests, each kind in turn; what went otherwise than it should."""
    wrong: Counter[str] = Counter()
    left = iter(range(number))

    async def ask(client: aiohttp.ClientSession) -> None:
        for turn in left:
            method, path, status = FLOOD[turn % len(FLOOD)]
            async with client.request(method, url + path, allow_redirects=False) as reply:
                await reply.read()
                if reply.status != status:
                    wrong[f"{method} {path}: {reply.status}"] += 1
                if "set-cookie" in reply.headers:
                    wrong[f"{method} {path}: a cookie"] += 1

    async with episodes.client(pooled=POOLED) as client:
        await asyncio.gather(*(ask(client) for _ in range(POOLED)))
    return wrong


@pytest.mark.parametrize("number", [2_000, pytest.param(100_000, marks=pytest.mark.soak)])
@pytest.mark.timeout(1200)
def test_a_flood_leaves_the_table_as_it_was(service: Service, number: int) -> None:
    """Health checks, 404s, preflights, metrics and MCP calls: no claim, no cookie, and no counter that stays up."""
    for n in range(8):
        assert service.connect().ask("POST", "/seed_session", body={"n": n})[0] == 200
    before = claims(service)
    assert len(before) >= 8
    assert asyncio.run(flood(service.url, number)) == Counter()
    eventually(lambda: claims(service) == before, "the table to be as it was")
    eventually(lambda: not any(row.in_flight for row in service.rows().values()), "nothing to be in flight")
    rows = service.rows().values()
    assert sum(row.claims for row in rows) == len(before)
    assert sum(row.unseeded for row in rows) == 0
    print(f"{number} requests on {len(rows)} workers: {[row.requests for row in rows]}; {len(before)} claims as before")


def test_sessions_that_never_start_cannot_crowd_out_starts(tmp_path: Path) -> None:
    """Three times as many tool calls without a seed as there is room for: starts still get their half."""
    room = 120
    running = Service(
        tmp_path, "conformance.app:resources_factory", factory=True, claims={"max_sessions": room}
    ).start()
    try:
        calls = asyncio.run(many(running.url, "/increment_counter", 3 * room))
        assert calls[503] + calls[200] == 3 * room
        assert room // 2 <= calls[200] <= room // 2 + running.workers
        starts = asyncio.run(many(running.url, "/seed_session", room))
        assert starts[200] + calls[200] <= room + running.workers
        assert starts[200] >= room // 2 - running.workers
        assert starts[503] == room - starts[200]
        assert len(claims(running)) == calls[200] + starts[200]
        assert running.stop() == 0
    finally:
        assert running.cleanup() == []


async def many(url: str, path: str, number: int) -> Counter[int]:
    """So many new sessions over a few connections, by status."""
    seen: Counter[int] = Counter()
    async with episodes.client(pooled=POOLED) as client:

        async def ask() -> None:
            async with client.post(url + path, json={}) as reply:
                seen[reply.status] += 1
                if reply.status == 503:
                    assert (await reply.json())["error"] == "table_full"

        await asyncio.gather(*(ask() for _ in range(number)))
    return seen
