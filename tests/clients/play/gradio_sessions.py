"""Sessions of gradio: with gradio_client (`client`), or with the two requests of its API for curl (`curl`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import httpx
from gradio_client import Client
from sessions import KEEP, MORE, URL, play_all, see_death

LIMITS = httpx.Limits(max_keepalive_connections=100 if KEEP else 0, max_connections=1000)


def with_client(number: int) -> None:
    """A page's sum, six times."""
    client = Client(URL, verbose=False, analytics_enabled=False, httpx_kwargs={"timeout": 30})
    try:
        for turn in range(1, 7):
            total = client.predict(number, api_name="/add")
            assert total == number * turn, (total, number * turn)
    finally:
        client.close()


@contextlib.asynccontextmanager
async def opened(_number: int) -> AsyncIterator[Client]:
    """A client whose page has a sum."""

    def start() -> Client:
        client = Client(URL, verbose=False, analytics_enabled=False, httpx_kwargs={"timeout": 30})
        client.predict(1, api_name="/add")
        return client

    yield await asyncio.to_thread(start)


async def count(client: Client) -> str:
    """A job that takes a while."""
    await asyncio.to_thread(lambda: client.submit(60, api_name="/count").result(timeout=15))
    return "right"


async def add(client: Client) -> str:
    """A job that needs the page's state."""
    total = await asyncio.to_thread(lambda: client.submit(1, api_name="/add").result(timeout=15))
    return "right" if total == 2 else f"wrong: {total}"


async def main() -> None:
    """gradio_client is synchronous: each session has a thread."""
    async with httpx.AsyncClient(limits=LIMITS, timeout=30) as shared:

        async def with_curl(number: int) -> None:
            for turn in range(6):
                call = f"{URL}/gradio_api/call/double"
                reply = await shared.post(call, json={"data": [number + turn]})
                reply.raise_for_status()
                events = (await shared.get(f"{call}/{reply.json()['event_id']}")).raise_for_status().text
                last = events.strip().rpartition("data: ")[2]
                assert json.loads(last) == [2 * (number + turn)], events

        async def with_thread(number: int) -> None:
            await asyncio.to_thread(with_client, number)

        if "death" in MORE:
            await see_death(opened, count, add)
        await play_all(with_curl if "curl" in MORE else with_thread)


asyncio.run(main())
