"""`gym-supervise claims`: which worker owns which session, read from shared memory."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.live import Live

from ops import tables
from ops.dump import JsonObject, Views
from supervisor.commands.running import find, tell_state
from supervisor.commands.status import require_segments, wide_console
from supervisor.errors import NotRunning

WATCH_SECONDS = 1.0

EPILOG = """\b
Examples:
  gym-supervise claims config.yaml
  gym-supervise claims config.yaml --state gone --json
  gym-supervise claims config.yaml 0f8fad5b-d9cb-469f-a165-70867728950e
  gym-supervise claims config.yaml --worker 2 --watch

\b
SESSION_ID is the whole id, of which the table keeps a keyed digest and shows
the first characters only; or a digest, as it is shown. With it comes all that
is known of its owner. Reads shared memory only.
"""


@click.command("claims", epilog=EPILOG)
@click.argument("config", type=click.Path())
@click.argument("session_id", metavar="[SESSION_ID|DIGEST]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --watch one list on each line.")
@click.option("--watch", is_flag=True, help="Show them anew every second until Ctrl-C.")
@click.option("--server", help="Only those of this server.")
@click.option("--worker", type=click.IntRange(min=0), help="Only those of the worker with this index.")
@click.option("--state", type=click.Choice(["live", "gone"]), help="Only live ones, or those of dead workers.")
def command(config: str, session_id: str | None, *, as_json: bool, watch: bool, **filters: Any) -> int:
    """Show the claims of the service of CONFIG, or all that is known of one session's."""
    filters["session"] = session_id
    if watch:
        return _watch(config, filters, as_json=as_json)
    with _views(config, filters) as views:
        entries = views.claims(**filters)
        if as_json:
            _print_list(entries)
        else:
            console = wide_console()
            console.print(_rendered(entries, console, one=session_id is not None))
    return 0


@contextlib.contextmanager
def _views(config: str, filters: dict[str, Any], *, tell: bool = True) -> Iterator[Views]:
    service = find(config)
    if tell:
        tell_state(service)
    with Views(service) as views:
        require_segments(config, service, views)
        server = filters["server"]
        if server is not None and server not in service.segments:
            names = ", ".join(service.segments)
            raise click.UsageError(f"--server: found {server!r}, expected one of {names}")
        yield views


def _rendered(entries: Iterator[JsonObject], console: Console, *, one: bool, rows: int | None = None) -> RenderableType:
    if one:
        return tables.one_claim(entries, now=time.time())
    width = console.width if console.is_terminal else None  # a program gets all of it
    return tables.claims(entries, now=time.time(), rows=rows, width=width)


def _print_list(entries: Iterator[JsonObject]) -> None:
    """Print a list without holding it whole: a table can have millions of claims."""
    opening = "["
    for entry in entries:
        print(opening + "\n  " + json.dumps(entry), end="")
        opening = ","
    print("[]" if opening == "[" else "\n]")


def _watch(config: str, filters: dict[str, Any], *, as_json: bool) -> int:
    try:
        if as_json:
            for number in itertools.count():
                with _views(config, filters, tell=number == 0) as views:
                    print(json.dumps(list(views.claims(**filters))), flush=True)
                time.sleep(WATCH_SECONDS)
        console = wide_console()
        with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
            for number in itertools.count():
                with _views(config, filters, tell=number == 0) as views:
                    rows = max(5, console.height - 6)
                    one = filters["session"] is not None
                    live.update(_rendered(views.claims(**filters), console, one=one, rows=rows), refresh=True)
                time.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        return 0
    except NotRunning:
        print("gym-supervise: the service has ended", file=sys.stderr)
        raise
    return 0
