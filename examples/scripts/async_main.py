"""A server whose script has an event loop of its own, beside other work, and something to do when it has served.

    python async_main.py --port 8000
    gym-supervise run -w 4 --preset starlette-session --set affinity.field=player async_main.py --port 8000

Its route:

    POST /guess  {"number": n}  -> {"hint": "higher", "lower" or "right", "guesses": n}
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import uuid

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

MOST = 100


class Games:
    """A number for each player to guess, in memory."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.guesses: dict[str, int] = {}
        self.seconds = 0

    async def guess(self, request: Request) -> Response:
        """One guess; the first one starts a player's game."""
        player = request.session.setdefault("player", uuid.uuid4().hex)
        number = self.numbers.setdefault(player, random.randint(1, MOST))
        self.guesses[player] = self.guesses.get(player, 0) + 1
        guessed = (await request.json())["number"]
        hint = "right" if guessed == number else "higher" if guessed < number else "lower"
        return JSONResponse({"hint": hint, "guesses": self.guesses[player], "pid": os.getpid()})

    async def whoami(self, _request: Request) -> Response:
        """The process that answers."""
        return PlainTextResponse(str(os.getpid()))

    async def count_seconds(self) -> None:
        """Work beside the server, in the same loop."""
        while True:
            await asyncio.sleep(1)
            self.seconds += 1


async def main(port: int) -> None:
    """Serve, and say afterwards how it was."""
    games = Games()
    app = Starlette(
        routes=[
            Route("/guess", games.guess, methods=["POST"]),
            Route("/whoami", games.whoami, methods=["GET"]),
        ],
        middleware=[Middleware(SessionMiddleware, secret_key=os.environ.get("SECRET", "not secret"))],
    )
    clock = asyncio.create_task(games.count_seconds())
    await uvicorn.Server(uvicorn.Config(app, port=port)).serve()
    clock.cancel()
    print(f"{len(games.numbers)} players in {games.seconds} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8000)
    asyncio.run(main(parser.parse_args().port))
