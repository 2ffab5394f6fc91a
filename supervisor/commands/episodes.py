"""Plays episodes against the counter example, as Gym's clients do, and keeps the score.

An episode is a seed, some increments and a verify; each request carries the cookies of the reply before it and no
others, as Gym's simple agent sends them. Connections are either one pool for all episodes, which mixes sessions on a
connection, or a new one for each request. The demo uses this, and so do the tests of the whole product.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import aiohttp

Score = Literal["right", "wrong", "refused", "failed"]

REQUEST_SECONDS = 60.0


@dataclass(frozen=True)
class Outcome:
    """How one episode ended.

    right    every reply was right, and the reward 1
    wrong    the server answered with another state than the episode's: the silent error
    refused  a reply said no; `status` is its status and `detail` the kind of refusal, where it names one
    failed   no reply came; `detail` says why
    """

    number: int
    score: Score
    status: int | None = None
    detail: str = ""


@dataclass
class Tally:
    """The score of many episodes."""

    right: int = 0
    wrong: int = 0
    refused: int = 0
    failed: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """Episodes that have ended."""
        return self.right + self.wrong + self.refused + self.failed

    def add(self, outcome: Outcome) -> None:
        """Count one episode."""
        setattr(self, outcome.score, getattr(self, outcome.score) + 1)
        if outcome.score in ("refused", "failed"):
            self.reasons[f"{outcome.status or ''} {outcome.detail}".strip()] += 1


class Refused(Exception):
    """A reply that is not 2xx."""

    def __init__(self, status: int, kind: str) -> None:
        super().__init__(f"{status} {kind}")
        self.status = status
        self.kind = kind


class Episode:
    """One session's client: `post` sends the last reply's cookies and keeps the next ones."""

    def __init__(self, client: aiohttp.ClientSession, base_url: str) -> None:
        self._client = client
        self._base_url = base_url
        self.cookies: Mapping[str, Any] = {}

    async def post(self, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON reply to a POST. Raises Refused for a status of 400 or more."""
        async with self._client.post(self._base_url + path, json=content, cookies=self.cookies) as reply:
            self.cookies = reply.cookies
            body = await reply.read()
            if reply.status >= 400:
                raise Refused(reply.status, _kind(body))
            result: dict[str, Any] = await reply.json()
            return result

    async def seed(self, count: int) -> None:
        """Start the session at a count."""
        await self.post("/seed_session", {"initial_count": count})

    async def increment(self, count: int) -> None:
        """Add to the count."""
        await self.post("/increment_counter", {"count": count})

    async def value(self) -> int:
        """The session's count."""
        return int((await self.post("/get_counter_value", {}))["count"])

    async def verify(self, expected: int) -> float:
        """End the session; the reward is 1 when its count is the expected one."""
        content = {"expected_count": expected, "responses_create_params": {"input": []}, "response": {}}
        return float((await self.post("/verify", content))["reward"])


def _kind(body: bytes) -> str:
    import json

    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return ""


def connector(*, pooled: int | None) -> aiohttp.TCPConnector:
    """At most `pooled` connections that all sessions share, or a new one for each request."""
    import aiohttp

    return aiohttp.TCPConnector(limit=pooled) if pooled else aiohttp.TCPConnector(force_close=True, limit=0)


def client(*, pooled: int | None) -> aiohttp.ClientSession:
    """A client without a cookie jar of its own, as Gym's."""
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
    return aiohttp.ClientSession(
        connector=connector(pooled=pooled), cookie_jar=aiohttp.DummyCookieJar(), timeout=timeout
    )


async def play_one(episode: Episode, number: int, *, steps: int, look: bool) -> Outcome:
    """Play one episode to its end. With `look` the count is read before the verify, too."""
    import aiohttp

    expected = number
    try:
        await episode.seed(number)
        for step in range(1, steps + 1):
            await episode.increment(step)
            expected += step
        seen = await episode.value() if look else expected
        reward = await episode.verify(expected)
    except Refused as refused:
        return Outcome(number, "refused", refused.status, refused.kind)
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
        return Outcome(number, "failed", None, f"{type(error).__name__}: {error}")
    return Outcome(number, "right" if reward == 1.0 and seen == expected else "wrong")


async def play(
    base_url: str,
    episodes: int,
    *,
    pooled: int | None = None,
    steps: int = 1,
    look: bool = False,
    on_done: Callable[[Outcome], None] | None = None,
) -> Tally:
    """Play many episodes at once.

    Args:
        base_url: such as http://127.0.0.1:8000, without a slash at its end.
        episodes: how many, all concurrently.
        pooled: connections that the episodes share; None: a new one for each request.
        steps: increments in each episode.
        look: read the count before the verify.
        on_done: called with each outcome as it comes.

    Returns:
        How many were right, wrong, refused, and failed.

    """
    tally = Tally()
    async with client(pooled=pooled) as shared:
        tasks = [
            asyncio.ensure_future(play_one(Episode(shared, base_url), number, steps=steps, look=look))
            for number in range(episodes)
        ]
        for next_done in asyncio.as_completed(tasks):
            outcome = await next_done
            tally.add(outcome)
            if on_done is not None:
                on_done(outcome)
    return tally
