"""`status` and `claims` for people: the structures of `ops.dump` as tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ops.times import age, seconds_of

STATE_STYLES = {
    "ready": "green",
    "live": "green",
    "booting": "yellow",
    "draining": "yellow",
    "stopping": "yellow",
    "backoff": "red",
    "failed": "bold red",
    "gone": "red",
    "dead": "red",
    "exited": "bold red",
    "stopped": "bold red",
}
FULL_SHARE = 0.8


def _table(*columns: str, title: str = "") -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns:
        numeric = column not in ("state", "server", "session", "digest", "opened", "last used")
        table.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    return table


def _state(state: str) -> Text:
    return Text(state, style=STATE_STYLES.get(state, ""))


def _or_dash(value: Any) -> str:
    return "-" if value is None else str(value)


def status(content: dict[str, Any]) -> RenderableType:
    """Supervisor and servers, one table each."""
    supervisor = content["supervisor"]
    since = f", since {supervisor['started_at']}" if supervisor["started_at"] else ""
    version = f", version {supervisor['version']}" if supervisor["version"] else ""
    parts: list[RenderableType] = [Text(f"supervisor {_or_dash(supervisor['pid'])}{since}{version}")]
    for name, server in content["servers"].items():
        claims = server["claims"]
        used = claims["live"] + claims["gone"]
        warning = " - nearly full" if used >= FULL_SHARE * claims["capacity"] else ""
        title = (
            f"{escape(name)} on {escape(_or_dash(server['bind']))}: {claims['live']} live and {claims['gone']} gone "
            f"claims of {claims['capacity']}{warning}"
        )
        table = _table(
            "worker", "pid", "incarnation", "state", "sessions", "in flight", "requests", "relayed out", "relayed in",
            "restarts", "heartbeat", "memory", title=title,
        )  # fmt: skip
        for worker in server["workers"]:
            beat, memory = worker["heartbeat_age_seconds"], worker["rss_bytes"]
            table.add_row(
                str(worker["index"]),
                _or_dash(worker["pid"]),
                _or_dash(worker["incarnation"]),
                _state(worker["state"]),
                *(str(worker[key]) for key in ("sessions", "in_flight", "requests", "relayed_out", "relayed_in")),
                str(worker["restarts"]),
                "-" if beat is None else f"{age(beat)} ago",
                "-" if memory is None else f"{memory / 2**20:.0f} MiB",
            )
        parts += [Text(""), table]
    return Group(*parts)


CLAIM_LAYOUTS = (
    ("server", "session", "state", "worker", "incarnation", "opened", "last used", "digest"),
    ("server", "session", "state", "worker", "incarnation", "opened ago", "used ago", "digest"),
    ("server", "session", "state", "worker", "incarnation", "opened ago", "used ago"),
    ("session", "state", "worker", "opened ago", "used ago"),
)
"""What a line about a claim says, from wide terminals to narrow ones."""

CLAIM_WIDTHS = {"session": 11, "state": 5, "opened": 20, "last used": 20, "digest": 32}


def claims(
    entries: Iterable[dict[str, Any]], *, now: float, rows: int | None = None, width: int | None = None
) -> RenderableType:
    """Claims, at most `rows` of them, in lines of at most `width`; `now` in wall seconds."""
    entries = iter(entries)
    shown = list(itertools.islice(entries, rows))
    servers = max((len(entry["server"]) for entry in shown), default=0)
    widths = CLAIM_WIDTHS | {"server": max(servers, len("server"))}
    layout = next(
        (layout for layout in CLAIM_LAYOUTS if width is None or _width(layout, widths) <= width), CLAIM_LAYOUTS[-1]
    )
    table = _table(*layout)
    for entry in shown:
        cells: dict[str, RenderableType] = {
            "server": escape(entry["server"]),
            "session": escape(f"{entry['session']}..." if entry["session"] else "-"),
            "state": _state(entry["state"]),
            "worker": _or_dash(entry["worker"]),
            "incarnation": _or_dash(entry["incarnation"]),
            "opened": _or_dash(entry["opened_at"]),
            "last used": _or_dash(entry["last_used_at"]),
            "opened ago": _ago(entry["opened_at"], now),
            "used ago": _ago(entry["last_used_at"], now),
            "digest": entry["digest"],
        }
        table.add_row(*(cells[column] for column in layout))
    total = len(shown) + sum(1 for _ in entries)
    words = f"{total} claim{'' if total == 1 else 's'}" + (
        f", the first {len(shown)} shown" if total > len(shown) else ""
    )
    return Group(table, Text(words)) if total else Text("no claims")


def _width(layout: tuple[str, ...], widths: dict[str, int]) -> int:
    return sum(widths.get(column, len(column)) + 3 for column in layout) + 1


def _ago(text: str | None, now: float) -> str:
    return "-" if text is None else age(max(0.0, now - seconds_of(text)))


def one_claim(entries: Iterable[dict[str, Any]], *, now: float) -> RenderableType:
    """Everything about one session's claim on each server that has one; `now` in wall seconds."""
    blocks = [_one_claim(entry, now) for entry in entries]
    if blocks:
        return Group(*blocks)
    return Text("no claims: it was never claimed here, has ended, or its record is retired; the log may have more")


def _one_claim(entry: dict[str, Any], now: float) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column()
    name = escape(f"{entry['session']}..." if entry["session"] else "-")
    state = Text.assemble(f"{name} of server {entry['server']}, ", _state(entry["state"]))
    table.add_row("session", state)
    table.add_row("digest", entry["digest"])
    table.add_row("claimed", _when(entry["opened_at"], now))
    table.add_row("last used", _when(entry["last_used_at"], now))
    owner = entry["owner"]
    pid = "" if owner["pid"] is None else f", pid {owner['pid']}"
    table.add_row("owner", f"worker {entry['worker']}, incarnation {entry['incarnation']}{pid}")
    if owner["started_at"]:
        table.add_row("  started", _when(owner["started_at"], now))
    if owner["state"] != "dead":
        beat = owner["heartbeat_age_seconds"]
        text = Text.assemble(_state(owner["state"]), "" if beat is None else f", last heartbeat {age(beat)} ago")
        table.add_row("  state", text)
        return table
    table.add_row("  died", _death(owner, now))
    if owner["exit"]:
        why = f": the supervisor ended it, since it {owner['reason']}" if owner["reason"] else ""
        table.add_row("  how", f"{owner['exit']}{why}")
    return table


def _death(owner: dict[str, Any], now: float) -> str:
    if owner["died_at"]:
        return _when(owner["died_at"], now)
    if owner["pid"] is None:
        return "so long ago that its row has gone to a later worker; the log has it"
    beat = owner["heartbeat_age_seconds"]
    return "with its supervisor" + ("" if beat is None else f"; its last heartbeat was {age(beat)} ago")


def _when(text: str | None, now: float) -> str:
    return "-" if text is None else f"{text}, {_ago(text, now)} ago"
