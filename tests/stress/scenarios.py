"""What the stress command does to a server. Each scenario is a coroutine for one attempt; its number is its count.

An attempt ends well, or raises Wrong with what was wrong. Lost sessions are tried anew only where a worker is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from stress.client import FIELD, Http, Lost, Session, Wrong

STEPS = 3
DROP_SECONDS = 0.05  # after its request a client goes away; the app replies when it hears of that

Attempt = Callable[[Http, int], Awaitable[None]]


@dataclass(frozen=True)
class Scenario:
    """One line of the table.

    full, small   how many attempts: of the command, and in the default test suite
    pooled        connections are shared by all sessions; else a new one for each request
    through       the server that clients talk to: resources, or the agent server in front of it
    kills         a worker is killed in the middle
    at_once       requests at once; the others wait for their turn
    together      attempts at once, all when None; less where an attempt must not wait for longer than the window
    """

    name: str
    attempt: Attempt
    full: int
    small: int
    pooled: bool = False
    through: str = "resources"
    kills: bool = False
    at_once: int = 128
    together: int | None = None


async def play(session: Session, *, sent_again: bool = False) -> None:
    """From a seed to the end. With `sent_again` requests may have been: then a close may have been run before."""
    for step in range(1, STEPS + 1):
        await session.increment(step)
    await session.check()
    await session.verify(close_follows=session.id is not None)
    await session.end(sent_again=sent_again)


async def untyped_episode(http: Http, number: int) -> None:
    """A seed, steps and a verify, by cookie."""
    session = Session(http, number, typed=False)
    await session.seed()
    await play(session)


async def typed_episode(http: Http, number: int) -> None:
    """The same with a typed seed and a close."""
    session = Session(http, number, typed=True)
    await session.seed()
    await play(session)


async def agent_episode(http: Http, number: int) -> None:
    """An agent session: seed, a run of several turns against the resources server, close."""
    agent = Session(http, number, typed=False)
    name = str(uuid4())
    await agent.post("/v1/agent_sessions", {"agent_session_id": name, "start": number, "target": number + 2})
    result = await agent.post("/run", {})
    if result["reward"] != 1.0:
        raise Wrong("reward 0")
    agent.cookies = {}
    if (await agent.post("/v1/agent_sessions/close", {"agent_session_id": name}))["turns"] != 1:
        raise Wrong("the close found no agent session")


async def failing_seed(http: Http, number: int) -> None:
    """The seed fails with 500 and no cookie; its cookieless close must find what it left; then a new attempt."""
    session = Session(http, number, typed=True)
    status, _, cookies = await http.post("/seed_session", session.seed_body(fail="500"), cookies={})
    if status != 500 or cookies:
        raise Wrong(f"a failing seed: {status}, cookies {list(cookies)}")
    await session.end()
    await typed_episode(http, number)


async def dropped_seed(http: Http, number: int) -> None:
    """The client goes away before the reply, or gets half of it; it seeds again without a cookie."""
    session = Session(http, number, typed=True)
    if number % 2:
        await http.drop("/seed_session", session.seed_body(fail="left"), seconds=DROP_SECONDS)
    elif await http.post_once("/seed_session", session.seed_body(fail="cut")) is not None:
        raise Wrong("a reply that was cut off looked whole")
    await session.seed()
    await play(session)


async def dropped_untyped_seed(http: Http, number: int) -> None:
    """Nobody knows the first id: it must not stay. The second seed is another session."""
    session = Session(http, number, typed=False)
    await http.drop("/seed_session", session.seed_body(fail="left"), seconds=DROP_SECONDS)
    await session.seed()
    await play(session)


async def close_before_seed(http: Http, number: int) -> None:
    """The close comes first: its delayed seed is refused. Where both come at once, nothing is left either."""
    session = Session(http, number, typed=True)
    close = ("/close_session", {FIELD: session.id})
    if number % 2:
        await http.post(*close, cookies={})
        status, reply, _ = await http.post("/seed_session", session.seed_body(), cookies={})
        if (status, reply.get("error")) != (409, "session_closed"):
            raise Wrong(f"a late seed: {status}")
        return
    (seeded, _, _), (closed, _, _) = await asyncio.gather(
        http.post("/seed_session", session.seed_body(), cookies={}), http.post(*close, cookies={})
    )
    if seeded not in (200, 409) or closed != 200:
        raise Wrong(f"a seed and its close at once: {seeded}, {closed}")


async def unread_seed(http: Http, number: int) -> None:
    """The seed's handler never reads the session; five calls on new connections are one session's."""
    session = Session(http, 0, typed=False)
    await session.seed(lazy=True)
    pids = set()
    for step in range(1, 6):
        await session.increment(step)
        pids.add((await session.post("/get_counter_value", {}))["pid"])
    if len(pids) != 1:
        raise Wrong(f"five calls on {len(pids)} workers")
    await session.check()
    await session.verify(close_follows=False)


async def mcp_sequence(http: Http, number: int) -> None:
    """MCP's own client with the token alone, each call on a new connection; then a look by cookie."""
    session = Session(http, number, typed=False)
    await session.seed()
    limits = httpx2.Limits(max_keepalive_connections=0)
    headers = session.seeded["mcp"]["headers"]
    async with (
        httpx2.AsyncClient(headers=headers, limits=limits, timeout=120) as own,
        Client(streamable_http_client(f"{http.url}/mcp", http_client=own), mode="legacy") as client,
    ):
        for step in range(1, STEPS + 1):
            result = await client.call_tool("increment_counter", {"count": step, "step": step})
            if result.is_error:
                raise Wrong(f"MCP: {result.content}")
            session.count += step
        result = await client.call_tool("get_counter_value", {})
        seen: Any = result.structured_content
        if seen != {"result": session.count}:
            raise Wrong(f"MCP: count {seen} instead of {session.count}")
    await session.check()
    await session.verify(close_follows=False)


async def surviving_episode(http: Http, number: int) -> None:
    """A worker dies in the middle: whose session is lost is told so each time, and starts a new one.

    A seed that is lost with its worker has given no cookie: only a close, which carries the id, can name its session.
    """
    while True:
        session = Session(http, number, typed=True)
        try:
            await session.seed()
            await play(session, sent_again=True)
        except Lost:
            path, content = ("/get_counter_value", {}) if session.cookies else ("/close_session", {FIELD: session.id})
            for _ in range(2):
                with suppress(Lost):
                    await session.post(path, content)
                    raise Wrong("a lost session was served") from None
        else:
            return


SCENARIOS = [
    Scenario("episodes, a connection for each request", untyped_episode, 4_000, 60),
    Scenario("episodes, pooled connections", untyped_episode, 10_000, 60, pooled=True),
    Scenario("typed episodes, pooled connections", typed_episode, 4_000, 60, pooled=True),
    Scenario("episodes through the agent server", agent_episode, 4_000, 40, pooled=True, through="agent", at_once=64),
    Scenario("episodes through the agent server", agent_episode, 10_000, 0, pooled=True, through="agent", at_once=64),
    Scenario("seeds that fail, a cookieless close, a new attempt", failing_seed, 1_000, 40, together=250),
    Scenario("seeds that fail, a cookieless close, a new attempt", failing_seed, 2_500, 0, pooled=True, together=250),
    Scenario("seeds whose first reply is dropped or cut off", dropped_seed, 1_000, 40, together=250),
    Scenario("untyped seeds whose first reply is dropped", dropped_untyped_seed, 1_000, 40, together=250),
    Scenario("a close before its delayed seed, or at once", close_before_seed, 1_000, 40, together=250),
    Scenario("seeds that never read the session, five calls", unread_seed, 1_000, 40),
    Scenario("MCP sequences with the token alone", mcp_sequence, 500, 12, at_once=32),
    Scenario("a worker killed in the middle", surviving_episode, 2_000, 150, kills=True),
]
