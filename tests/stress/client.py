"""Clients of the stress command: they send the last reply's cookies alone, and send again what broke, as Gym's do."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import aiohttp

FIELD = "resources_session_id"
BROKEN = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, ConnectionError)
RETRY_SECONDS = 0.05


class Lost(Exception):
    """The server says that the session is gone."""


class Wrong(Exception):
    """A reply that should not have come."""


class Http:
    """Connections that many sessions share, or a new one for each request.

    Time-outs are for a reply that does not come: a request that waits here for one of the `at_once` places does not
    fail for that.
    """

    def __init__(self, url: str, *, at_once: int, pooled: bool) -> None:
        self.url = url
        self.requests = 0
        self.broken = 0
        self.gone: Counter[str] = Counter()
        self._places = asyncio.Semaphore(at_once)
        timeout = aiohttp.ClientTimeout(total=None, connect=120, sock_read=120)
        connector = aiohttp.TCPConnector(limit=0, force_close=not pooled, keepalive_timeout=20 if pooled else None)
        self._client = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), timeout=timeout)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def post(
        self, path: str, content: Any, *, cookies: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any], Mapping[str, Any]]:
        """Status, JSON and cookies of a reply; sent again as long as the connection breaks."""
        while True:
            try:
                async with self._places:
                    self.requests += 1
                    async with self._client.post(
                        self.url + path, json=content, cookies=cookies, headers=headers
                    ) as reply:
                        body = await reply.read()
                return reply.status, as_json(body), reply.cookies
            except BROKEN:
                self.broken += 1
                await asyncio.sleep(RETRY_SECONDS)

    async def post_once(self, path: str, content: Any) -> int | None:
        """One try; the status, or None when the connection broke."""
        try:
            async with self._places:
                self.requests += 1
                async with self._client.post(self.url + path, json=content) as reply:
                    await reply.read()
            return reply.status
        except BROKEN:
            return None

    async def drop(self, path: str, content: Any, *, seconds: float) -> None:
        """Send a request whole, and go away before its reply."""
        where = urlsplit(self.url)
        body = json.dumps(content).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        async with self._places:
            self.requests += 1
            _, writer = await asyncio.open_connection(where.hostname, where.port)
            writer.write(head.encode() + body)
            await writer.drain()
            await asyncio.sleep(seconds)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


class Session:
    """One session's client: its cookies, the count it expects, and the number of its last step."""

    def __init__(self, http: Http, count: int, *, typed: bool) -> None:
        self.http = http
        self.id = str(uuid4()) if typed else None
        self.cookies: Mapping[str, Any] = {}
        self.count = count
        self.start = count
        self.steps = 0
        self.seeded: dict[str, Any] = {}

    async def post(self, path: str, content: Any, *, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The JSON of a reply with status 200. Raises Lost for a 410, and Wrong for any other."""
        status, reply, self.cookies = await self.http.post(path, content, cookies=self.cookies, headers=headers)
        if status == 410:
            self.http.gone[self.id or str(id(self))] += 1
            raise Lost
        if status != 200:
            raise Wrong(f"{path}: {status} {reply.get('error', '')}".strip())
        return reply

    def seed_body(self, **more: Any) -> dict[str, Any]:
        """The body of this session's seed."""
        named = {} if self.id is None else {FIELD: self.id}
        return {**named, "initial_count": self.start, **more}

    async def seed(self, **more: Any) -> None:
        """Start it."""
        self.seeded = await self.post("/seed_session", self.seed_body(**more))

    async def increment(self, count: int) -> None:
        """One step."""
        self.steps += 1
        await self.post("/increment_counter", {"count": count, "step": self.steps})
        self.count += count

    async def check(self) -> None:
        """Look: another count than the expected one is another session's, or an empty one."""
        seen = (await self.post("/get_counter_value", {}))["count"]
        if seen != self.count:
            raise Wrong(f"count {seen} instead of {self.count}")

    async def verify(self, *, close_follows: bool) -> None:
        """The reward, which must be 1."""
        headers = {"x-ng-checkpoint-close-follows": "1"} if close_follows else None
        if (await self.post("/verify", {"expected_count": self.count}, headers=headers))["reward"] != 1.0:
            raise Wrong("reward 0")

    async def end(self, *, sent_again: bool = False) -> None:
        """Close it, where it can be named without a cookie. There must have been something to close."""
        if self.id is None:
            return
        reply = await self.post("/close_session", {FIELD: self.id})
        if not reply["had"] and not sent_again:
            raise Wrong("the close found no session")


def as_json(body: bytes) -> dict[str, Any]:
    """The body as JSON, or {}."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
