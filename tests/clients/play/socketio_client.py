"""Sessions with Socket.IO's Python client: `polling`, `websocket`, or from one to the other (`upgrade`)."""

from __future__ import annotations

import asyncio

import aiohttp
import socketio
from sessions import KEEP, MORE, URL, play_all

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

        await play_all(play)


asyncio.run(main())
