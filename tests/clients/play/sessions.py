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
from collections.abc import Awaitable, Callable

AT_ONCE = 50

URL, SESSIONS, KEEP = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "keep"
MORE = sys.argv[4:]
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
