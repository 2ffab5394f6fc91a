"""An app that starts children: plain, in a session of their own, and double-forked."""

from __future__ import annotations

import os
import subprocess
import sys

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
FORK = [
    sys.executable,
    "-c",
    f"import subprocess, os; subprocess.Popen({SLEEP!r}, start_new_session=True); os._exit(0)",
]
KEPT: list[subprocess.Popen[bytes]] = []


async def whoami(_request: Request) -> Response:
    """The pid of the worker."""
    return PlainTextResponse(str(os.getpid()))


def spawn(_request: Request) -> Response:
    """One child of each kind."""
    KEPT.append(subprocess.Popen(SLEEP))
    KEPT.append(subprocess.Popen(SLEEP, start_new_session=True))
    subprocess.run(FORK, check=True)
    return PlainTextResponse("ok")


app = Starlette(routes=[Route("/whoami", whoami), Route("/spawn", spawn, methods=["POST"])])
