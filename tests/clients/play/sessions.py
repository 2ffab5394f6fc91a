"""What every player of sessions has in common: many at once, each right or with its error, told as JSON.

    python PLAYER.py URL SESSIONS close|keep [more]

`close`: a connection for each request; `keep`: connections are kept alive, and shared by the sessions where the client
can. Prints a list with null for each session that was right and the error for each other.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

URL, SESSIONS, KEEP = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "keep"
MORE = sys.argv[4:]
AT_ONCE = int(os.environ.get("SESSIONS_AT_ONCE", "50"))
SECONDS = float(os.environ.get("SESSION_SECONDS", "40"))


def roots(error: BaseException) -> list[BaseException]:
    """The errors inside groups of errors."""
    if isinstance(error, BaseExceptionGroup):
        return [root for inner in error.exceptions for root in roots(inner)]
    return [error]


def told(error: BaseException) -> str:
    """An error in one line."""
    return "; ".join(f"{type(root).__name__}: {root}"[:200] for root in roots(error))


async def play_all(play: Callable[[int], Awaitable[None]], *, seconds: float = SECONDS) -> None:
    """Play every session and print what became of each."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> str | None:
        async with turns:
            try:
                async with asyncio.timeout(seconds):
                    await play(number)
            except BaseException as error:
                return told(error)
            return None

    print(json.dumps(await asyncio.gather(*(one(number) for number in range(SESSIONS)))), flush=True)
    os._exit(0)  # a client's threads that hang are not waited for


Running = Callable[[Any], Awaitable[str]]


async def see_death(
    opened: Callable[[int], AbstractAsyncContextManager[Any]], running: Running, after: Running, *, seconds: float = 20
) -> None:
    """Open every session, have something run in each, and see what becomes of it when a worker is killed meanwhile.

    Prints `running` once everything runs, reads a line when the worker has been killed, and prints for each session how
    what ran has ended, after how many seconds, and what the session was good for afterwards.
    """
    go, under_way = asyncio.Event(), asyncio.Semaphore(0)

    async def one(number: int) -> list[Any]:
        found: list[Any] = ["", 0.0, ""]
        try:
            async with opened(number) as session:
                task = asyncio.ensure_future(running(session))
                await asyncio.sleep(0.5)
                under_way.release()
                await go.wait()
                began = time.monotonic()
                found[0] = await _told(task, seconds)
                found[1] = round(time.monotonic() - began, 1)
                found[2] = await _told(after(session), seconds)
        except BaseException as error:
            if not found[2]:
                under_way.release()
                found[2] = told(error)
        return found

    tasks = [asyncio.ensure_future(one(number)) for number in range(SESSIONS)]
    for _ in tasks:
        await under_way.acquire()
    print("running", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    go.set()
    print(json.dumps(await asyncio.gather(*tasks)), flush=True)
    os._exit(0)


async def _told(what: Awaitable[str], seconds: float) -> str:
    try:
        return await asyncio.wait_for(what, seconds)
    except TimeoutError as error:
        return f"nothing within {seconds:g} s" if not str(error) else told(error)
    except Exception as error:
        return told(error)
