"""`gym-supervise top`: the workers of a service, live, read from shared memory. It asks the supervisor nothing."""

from __future__ import annotations

import sys
import time

import click
from rich.console import Console, RenderableType
from rich.live import Live

from ops import sample, top
from ops.dump import Views
from ops.sample import Sample
from ops.service import Service
from ops.terminal import Terminal
from supervisor.commands.running import find, tell_state
from supervisor.commands.status import require_segments, wide_console
from supervisor.errors import NotRunning

REST_SHARE = 10
"""A look at a table of millions of sessions takes long: it rests ten times as long as it looks."""

SOON_SECONDS = 0.25
"""The first frame has no rates; the second comes soon."""

EPILOG = """\b
Examples:
  gym-supervise top config.yaml
  gym-supervise top config.yaml --interval 0.2
  gym-supervise top config.yaml --once > frame.txt

\b
q or Ctrl-C ends it. out/s and in/s are requests that a worker relays to others,
and takes from them. `exited` in red is a worker whose death the supervisor has
not noticed: it is stopped, or hangs. Reads shared memory only.
"""


@click.command("top", epilog=EPILOG)
@click.argument("config", type=click.Path())
@click.option("--once", is_flag=True, help="Print one frame, with rates over one interval, and end.")
@click.option(
    "--interval", type=click.FloatRange(min=0.05), default=1.0, show_default=True, help="Seconds between two looks."
)
def command(config: str, *, once: bool, interval: float) -> int:
    """Watch the workers of the service of CONFIG."""
    looks = Looks(config)
    console = wide_console()
    if once:
        looks.first()
        time.sleep(interval)
        looks.again()
        console.print(looks.frame(width=console.width, height=None))
        return 0
    if not (console.is_terminal and sys.stdin.isatty()):
        raise click.UsageError("top needs a terminal; --once prints one frame to anything")
    looks.first()
    return _watch(looks, console, interval)


class Looks:
    """Looks at one service, which may end and come again meanwhile."""

    def __init__(self, config: str) -> None:
        self.config = config
        self.seconds = 0.0  # that the last look took
        self._service: Service | None = None
        self._trouble = ""
        self._before: Sample | None = None
        self._last: Sample | None = None

    def first(self) -> None:
        """Look for the first time. Raises NotRunning."""
        service = find(self.config)
        tell_state(service)
        with Views(service) as views:
            require_segments(self.config, service, views)
        self.again()

    def again(self) -> None:
        """Look again."""
        started = time.monotonic()
        try:
            service = find(self.config)
        except NotRunning as error:
            self._service, self._trouble = None, str(error)
            self._before = self._last = None
            return
        with Views(service) as views:
            self._service = service
            self._before, self._last = self._last, sample.take(views, now=started)
        self.seconds = time.monotonic() - started

    def frame(self, *, width: int, height: int | None) -> RenderableType:
        """What was seen."""
        wall = time.time()
        if self._service is None:
            return top.nothing(self._trouble, wall)
        return top.frame(self._service, self._last, self._before, width=width, height=height, wall=wall)


def _watch(looks: Looks, console: Console, interval: float) -> int:
    live = Live(console=console, auto_refresh=False, screen=True)

    def draw() -> None:
        live.update(looks.frame(width=console.width, height=console.height), refresh=True)

    def resume() -> None:
        live.start()
        draw()

    with Terminal(pause=live.stop, resume=resume) as terminal, live:
        due = time.monotonic() + min(interval, SOON_SECONDS)
        draw()
        while terminal.wait(due - time.monotonic()) != "end":
            if time.monotonic() >= due:
                looks.again()
                due = time.monotonic() + max(interval, REST_SHARE * looks.seconds)
            draw()
    return 0
