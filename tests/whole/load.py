"""Episodes that go on while a test does something to the service, and an app that can be changed on disk."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from whole.harness import Service

from supervisor.commands import episodes

WINDOW = 0.2
"""Seconds for which an ended session keeps its claim: what drains waits so long, and no longer than it must."""

MODULE = """
import os
import pathlib

from starlette.responses import JSONResponse
from starlette.routing import Route

from examples.counter import app

pathlib.Path(__file__).with_name("imported").open("a").write(f"{{os.getpid()}}\\n")


async def version(_request):
    return JSONResponse({{"version": {version!r}, "pid": os.getpid(), "variable": os.environ.get("VARIABLE", "")}})


app.router.routes.append(Route("/version", version))
"""


def options(folder: Path, **more: Any) -> dict[str, Any]:
    """Options of a service of the app in `folder`."""
    return {
        "chdir": str(folder),
        "env": {"PYTHONDONTWRITEBYTECODE": "1"},
        "affinity": {"preset": "gym-resources", "session_close_retry_window_seconds": WINDOW},
        "uvicorn": {"timeout_keep_alive": 1},
        **more,
    }


def write_app(folder: Path, version: str) -> None:
    """The counter with a route that says its version."""
    folder.mkdir(exist_ok=True)
    unfinished = folder / ".mine.py"
    unfinished.write_text(MODULE.format(version=version))
    unfinished.rename(folder / "mine.py")


class Load:
    """Players that play episode after episode, in a thread, until the end of the `with`. `tally` has the score."""

    def __init__(self, service: Service, players: int = 8, *, steps: int = 4, pooled: int | None = None) -> None:
        self.tally = episodes.Tally()
        self._url = service.url
        self._players = players
        self._steps = steps
        self._pooled = pooled
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._play()))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    @property
    def right(self) -> int:
        """Episodes that have ended right, so far."""
        return self.tally.right

    def assert_all_right(self) -> None:
        """Nothing wrong, refused or failed; and there was something."""
        print(f"episodes: {self.tally}")
        assert self.tally.total > 0
        assert self.tally.right == self.tally.total, self.tally

    async def _play(self) -> None:
        async with episodes.client(pooled=self._pooled) as client:
            await asyncio.gather(*(self._go_on(client, player) for player in range(self._players)))

    async def _go_on(self, client: Any, player: int) -> None:
        number = player
        while not self._over.is_set():
            number += self._players
            episode = episodes.Episode(client, self._url)
            self.tally.add(await episodes.play_one(episode, number, steps=self._steps, look=True))
