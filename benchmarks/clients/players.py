"""Clients that play sessions with aiohttp, as Gym's own do.

Each keeps the cookies of its session and knows what must come back; `lost` says that the server has told it that its
session is over. The connections are pooled, so that a session's requests come over many of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from benchmarks.harness.rows import Unmeasurable

POOL = 32
TIMEOUT_SECONDS = 20.0


@dataclass(eq=False)
class Player:
    """One session at a server. What came of its requests: `right`, `wrong`, and `refused` with the reason of each."""

    client: aiohttp.ClientSession
    cookies: dict[str, str] = field(default_factory=dict)
    pid: int = 0
    right: int = 0
    wrong: int = 0
    refused: list[str] = field(default_factory=list)
    lost: bool = False
    _count: int = 0
    _unsure: int = 0

    @property
    def cookie(self) -> str:
        """The Cookie header's value."""
        return "; ".join(f"{name}={value}" for name, value in self.cookies.items())

    @property
    def outcome(self) -> str:
        """Of the whole session: right, wrong or refused."""
        return "wrong" if self.wrong else "refused" if self.refused else "right"

    async def seed(self) -> bool:
        """Start the session. Returns whether there was a good reply, as the other two do."""
        found = await self._ask("/seed_session", {"count": 7})
        if found is not None:
            self.pid, self._count = found["pid"], 7
        return found is not None

    async def step(self) -> bool:
        """Count one more."""
        return self._judge(await self._ask("/increment", {"count": 1}), added=1)

    async def end(self) -> bool:
        """Have the count verified, which ends the session."""
        return self._judge(await self._ask("/verify", {}), added=0)

    def _judge(self, found: Any, *, added: int) -> bool:
        """A request that failed may have been counted or not."""
        if found is None:
            self._unsure += added
        elif self._count + added <= found["count"] <= self._count + added + self._unsure:
            self.right += 1
            self._count, self._unsure = found["count"], 0
        else:
            self.wrong += 1
        return found is not None

    async def _ask(self, path: str, body: dict[str, int]) -> Any:
        """The reply's body; None: there was no good one."""
        try:
            status, found = await self._post(path, body)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.refused.append(type(error).__name__)
            return None
        if status != 200:
            self.refused.append(str(status))
            self.lost = status == 410
        return found

    async def _post(self, path: str, body: dict[str, int]) -> tuple[int, Any]:
        headers = {"Cookie": self.cookie} if self.cookies else {}
        async with self.client.post(path, json=body, headers=headers) as reply:
            for name, morsel in reply.cookies.items():
                self.cookies[name] = morsel.value
            return reply.status, await reply.json() if reply.status == 200 else None


@contextlib.asynccontextmanager
async def client(port: int, *, pool: int = POOL) -> AsyncIterator[aiohttp.ClientSession]:
    """A client with `pool` connections; 0: one for each request."""
    connector = aiohttp.TCPConnector(limit=pool, force_close=not pool)
    async with aiohttp.ClientSession(
        f"http://127.0.0.1:{port}",
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS),
    ) as found:
        yield found


async def seeded(session: aiohttp.ClientSession, count: int) -> list[Player]:
    """`count` sessions, started."""
    players = [Player(session) for _ in range(count)]
    await asyncio.gather(*(player.seed() for player in players))
    refused = [player for player in players if player.refused]
    if refused:
        raise Unmeasurable(f"{len(refused)} of {count} new sessions were refused: {refused[0].refused}")
    return players


def cookies_of_new_sessions(port: int, count: int) -> Sequence[str]:
    """The Cookie headers of `count` sessions, each started over a connection of its own."""

    async def start() -> list[str]:
        async with client(port, pool=0) as session:
            return [player.cookie for player in await seeded(session, count)]

    return asyncio.run(start())
