"""The private socket: whose it is, when it is there, and what goes on when it is not."""

from __future__ import annotations

import asyncio
import os
import stat
from typing import Any

import pytest
from relay.conftest import Run
from relay.pair import OWNER, Client, Pair, echo, nobody_listens, reply, until

from supervisor.relay import unix
from supervisor.relay.outcomes import Taken, Unreachable


def exists(path: str) -> bool:
    return os.path.exists(path)


def test_private_socket(run: Run) -> None:
    """The socket is this user's alone from the beginning; a stale file is replaced; a path too long names the limit."""

    async def test() -> None:
        async with Pair(echo) as pair:
            path = pair.path_of(OWNER)
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
            nobody_listens(pair.path_of(8))
            other = pair.make_server(8)
            await other.start(pair.path_of(8))
            assert await pair.relay(Client(b"x"), owner=8) == Taken()
            other.close()
            await until(lambda: not other.channels)
            assert not exists(pair.path_of(8))
            with pytest.raises(OSError, match=f"may have {unix.MAX_PATH} bytes, found 2"):
                await other.start(pair.path_of(8) + "x" * 200)

    run(test())


def test_stop_listening(run: Run) -> None:
    """After stop_listening there are no new connections; those that are there go on, also for requests to come."""
    go = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/wait":
            await go.wait()
        await reply()(scope, receive, send)

    async def test() -> None:
        async with Pair(app, reach_seconds=0.05) as pair:
            waiting = asyncio.ensure_future(pair.ask("GET", "/wait"))
            await until(lambda: pair.ran)
            pair.server.stop_listening()
            assert not exists(pair.path_of(OWNER))
            assert type((await pair.ask())[0]) is Unreachable
            go.set()
            assert (await waiting)[0] == Taken()
            assert (await pair.ask())[0] == Taken()

    run(test())
