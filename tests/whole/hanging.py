"""The Gym-like app with routes that keep the event loop, or all of Python, to themselves."""

from __future__ import annotations

import itertools
import time

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from whole.apps import gym

KEPT: list[bytearray] = []


async def hang_in_the_loop(request: Request) -> Response:
    """Blocks the loop for ever; other threads could run."""
    time.sleep(600)  # noqa: ASYNC251 - that is what it is for
    return PlainTextResponse("late")


async def hang_with_the_gil(request: Request) -> Response:
    """Nothing of Python runs any more: a loop in C."""
    return PlainTextResponse(str(sum(itertools.repeat(1))))


async def compute(request: Request) -> Response:
    """Keeps the GIL for a while, as a long computation in C."""
    end = time.monotonic() + float(request.query_params["seconds"])
    while time.monotonic() < end:
        sum(itertools.repeat(1, 20_000_000))
    return PlainTextResponse("done")


async def grow(request: Request) -> Response:
    """Takes memory and keeps it."""
    KEPT.append(bytearray(b"x") * (int(request.query_params["mib"]) << 20))
    return PlainTextResponse("grown")


gym.router.routes += [
    Route("/loop", hang_in_the_loop),
    Route("/gil", hang_with_the_gil),
    Route("/compute", compute),
    Route("/grow", grow),
]
