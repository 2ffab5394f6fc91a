"""Sessions with Socket.IO's Python client: `polling`, `websocket`, or from one to the other (`upgrade`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import socketio
from sessions import KEEP, MORE, URL, play_all, see_death

TRANSPORTS = {"polling": ["polling"], "websocket": ["websocket"], "upgrade": ["polling", "websocket"]}[MORE[0]]


async def main() -> None:
    """All sessions share one pool of connections."""
    connector = aiohttp.TCPConnector(force_close=not KEEP, limit=1000)
    async with aiohttp.ClientSession(connector=connector) as shared:

        async def play(number: int) -> None:
            client = socketio.AsyncClient(http_session=shared, reconnection=False)
            await client.connect(URL, transports=TRANSPORTS)
            try:
                for turn in range(1, 7):
                    total = await client.call("add", number, timeout=30)
                    assert total == number * turn, (total, number * turn)
                if MORE[0] == "upgrade":
                    assert client.transport() == "websocket", client.transport()
            finally:
                await client.eio.disconnect(abort=True)  # the other way waits for the poll that is under way

        @contextlib.asynccontextmanager
        async def opened(number: int) -> AsyncIterator[tuple[socketio.AsyncClient, int, asyncio.Event]]:
            client, gone = socketio.AsyncClient(http_session=shared, reconnection_delay=0.2), asyncio.Event()
            client.on("disconnect", lambda *_: gone.set())
            await client.connect(URL, transports=TRANSPORTS)
            await client.call("add", number + 1, timeout=30)
            yield client, number + 1, gone
            await client.eio.disconnect(abort=True)

        async def stays(session: tuple[socketio.AsyncClient, int, asyncio.Event]) -> str:
            try:
                async with asyncio.timeout(8):
                    await session[2].wait()
            except TimeoutError:
                return "right"
            return "disconnected"

        async def goes_on(session: tuple[socketio.AsyncClient, int, asyncio.Event]) -> str:
            client, number, _ = session
            while not client.connected or "/" not in client.namespaces:  # noqa: ASYNC110 - the client has no such event
                await asyncio.sleep(0.05)
            total = await client.call("add", number, timeout=10)
            afresh = "connected again, to a new session" if total == number else f"wrong: {total}"
            return "right" if total == 2 * number else afresh

        await (see_death(opened, stays, goes_on) if "death" in MORE else play_all(play))


asyncio.run(main())
