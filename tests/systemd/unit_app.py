"""A small ASGI app for units. Each id in `x-session` is a session; every reply is the worker's pid.

While $STATE_DIRECTORY has a file `gate`, only the first worker to come gets through its start-up.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """One scope."""
    if scope["type"] == "lifespan":
        await receive()
        await _pass_the_gate(Path(os.environ["STATE_DIRECTORY"]))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})


async def _pass_the_gate(folder: Path) -> None:
    if not (folder / "gate").exists():
        return
    try:
        (folder / "passed").touch(exist_ok=False)
    except FileExistsError:
        while (folder / "gate").exists():  # noqa: ASYNC110 - a file rings no bell
            await asyncio.sleep(0.02)
