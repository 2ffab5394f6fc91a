"""Apps for the real worker in tests of the processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

REPL = """
import time
try:
    print("up", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted")
"""


async def whoami(_request: Request) -> Response:
    """The pid of the worker."""
    return PlainTextResponse(str(os.getpid()))


async def repl(_request: Request) -> Response:
    """Start a REPL, interrupt it while it computes, and tell how it took it."""
    child = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", REPL, stdout=subprocess.PIPE)
    assert child.stdout is not None
    await child.stdout.readline()
    child.send_signal(2)
    answer = await child.stdout.read()
    await child.wait()
    return Response(answer)


@asynccontextmanager
async def endless(_app: Starlette) -> AsyncIterator[None]:
    """A start-up that waits for something that never comes."""
    print("waiting in the lifespan", file=sys.stderr, flush=True)
    await asyncio.sleep(600)
    yield


app = Starlette(routes=[Route("/whoami", whoami), Route("/repl", repl)])
never_ready = Starlette(lifespan=endless)
