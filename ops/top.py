"""One frame of `top`: the supervisor, and for each server claims and workers, with rates since the last look."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ops.sample import Rates, Sample, ServerSample, WorkerSample, rates
from ops.service import Service
from ops.tables import FULL_SHARE, STATE_STYLES
from ops.times import age, iso

BAR_CELLS = 24
GAP_CELLS = 3  # of rich between two columns
STALE_SECONDS = 5.0  # ten beats
SERVER_LINES = 5  # beside the rows: a blank one, title, claims, head and rule of the table


@dataclass(frozen=True, slots=True)
class Column:
    """`keep`: which go first where the terminal is narrow; the least important have the highest number."""

    title: str
    keep: int
    text: Callable[[WorkerSample, Rates | None], str]


def _count(name: str) -> Callable[[WorkerSample, Rates | None], str]:
    return lambda worker, _: f"{getattr(worker, name)}"


def _rate(name: str) -> Callable[[WorkerSample, Rates | None], str]:
    return lambda _, rate: "-" if rate is None else _per_second(getattr(rate, name))


def _per_second(value: float) -> str:
    return f"{value:.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def _beat(worker: WorkerSample, _: Rates | None) -> str:
    beat = worker.heartbeat_age
    return "-" if beat is None else f"{beat:.1f} s" if beat < 10 else age(beat)


def _memory(worker: WorkerSample, _: Rates | None) -> str:
    return f"{worker.rss_bytes / 2**20:.0f} MiB" if worker.rss_bytes else "-"


COLUMNS = (
    Column("worker", 0, _count("index")),
    Column("pid", 5, lambda worker, _: str(worker.pid or "-")),
    Column("state", 0, _count("state")),
    Column("sessions", 0, _count("sessions")),
    Column("req/s", 0, _rate("requests")),
    Column("out/s", 2, _rate("relayed_out")),
    Column("in/s", 2, _rate("relayed_in")),
    Column("in flight", 1, _count("in_flight")),
    Column("conns", 3, _count("connections")),
    Column("heartbeat", 1, _beat),
    Column("memory", 3, _memory),
    Column("restarts", 4, _count("restarts")),
    Column("requests", 6, _count("requests")),
)


def frame(
    service: Service, sample: Sample | None, before: Sample | None, *, width: int, height: int | None, wall: float
) -> RenderableType:
    """What there is to see now.

    Args:
        service: as it was found
        sample: this look; None: there was nothing to look at
        before: the look before it; without one there are no rates
        width: of the terminal
        height: of the terminal; None: as long as it gets
        wall: the time of day, seconds

    """
    header = _header(service, wall)
    parts: list[RenderableType] = [*header]
    if sample is None:
        return Group(*parts)
    speed = rates(before, sample)
    rows = None
    if height is not None:
        taken = sum(1 if line.no_wrap else len(line.wrap(Console(width=width), width)) for line in header)
        servers = max(len(sample.servers), 1)
        rows = max((height - taken) // servers - SERVER_LINES, 2)
    for server in sample.servers:
        parts += [Text(""), *_server(server, speed, width, rows)]
    return Group(*parts)


def nothing(text: str, wall: float) -> RenderableType:
    """A frame for when nothing runs there any more."""
    return Group(Text(f"{iso(wall)}", style="dim"), Text(text, style="bold red"), Text("q ends this", style="dim"))


def _line(*parts: str | tuple[str, str]) -> Text:
    """One line, cut where the terminal is too narrow."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _header(service: Service, wall: float) -> list[Text]:
    since = f", since {iso(service.started_at)}" if service.started_at else ""
    version = f", version {service.version}" if service.version else ""
    pid = service.supervisor_pid
    lines = [_line((f"supervisor {pid}", "bold"), f"{since}{version}    ", (f"{iso(wall)}", "dim"))]
    if service.state == "stopped":
        text = f"supervisor {pid} is stopped by a signal: deaths are not noticed until `kill -CONT {pid}`"
        lines.append(Text(text, style="bold red"))
    elif service.state == "dead":
        text = f"supervisor {pid} is dead and did not clean up: this is what it left, and `serve` removes it"
        lines.append(Text(text, style="bold red"))
    elif service.state == "starting":
        lines.append(Text(f"supervisor {pid} is starting", style="yellow"))
    return lines


def _server(
    server: ServerSample, speed: Mapping[tuple[str, int], Rates] | None, width: int, rows: int | None
) -> list[RenderableType]:
    shown, hidden = _fitting(server.workers, rows)
    columns = _columns_for(shown, speed, server.name, width)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for column in columns:
        table.add_column(column.title, justify="left" if column.title == "state" else "right", no_wrap=True)
    for worker in shown:
        rate = None if speed is None else speed.get((server.name, worker.incarnation))
        table.add_row(*(_cell(column, worker, rate) for column in columns))
    parts: list[RenderableType] = [_title(server, speed), _claims(server), table]
    if hidden:
        states = dict.fromkeys(worker.state for worker in hidden)
        parts.append(Text(f"and {len(hidden)} more workers: {', '.join(states)}", style="dim"))
    return parts


def _title(server: ServerSample, speed: Mapping[tuple[str, int], Rates] | None) -> Text:
    workers = server.workers
    ready = sum(worker.state == "ready" for worker in workers)
    text = f" on {server.bind}: {ready} of {len(workers)} workers ready, {sum(w.sessions for w in workers)} sessions, "
    text += f"{sum(worker.in_flight for worker in workers)} in flight"
    if speed is not None:
        total = sum((speed[server.name, worker.incarnation] for worker in workers), Rates())
        text += f", {_per_second(total.requests)} requests/s, {_per_second(total.relayed_out)} relays/s"
    return _line((server.name, "bold"), text)


def _claims(server: ServerSample) -> Text:
    """A bar of the table: live, gone, free. Live ones are open, or kept for a while after their end."""
    capacity = max(server.capacity, 1)
    live = -(-server.live * BAR_CELLS // capacity)
    gone = min(-(-server.gone * BAR_CELLS // capacity), max(BAR_CELLS - live, 0))
    open_sessions = sum(worker.sessions for worker in server.workers if worker.state != "dead")
    ended = max(server.live - open_sessions, 0)
    used = (server.live + server.gone) / capacity
    style = "bold red" if used >= FULL_SHARE else ""
    return _line(
        "claims ",
        ("\u2588" * min(live, BAR_CELLS), "green"),
        ("\u2588" * gone, "red"),
        ("\u2591" * max(BAR_CELLS - live - gone, 0), "dim"),
        f" {server.live} live",
        f" ({ended} of them ended)" if ended else "",
        ", ",
        (f"{server.gone} gone", "red" if server.gone else ""),
        ", ",
        (f"{used:.1%} of {server.capacity}", style),
    )


def _fitting(
    workers: Sequence[WorkerSample], rows: int | None
) -> tuple[Sequence[WorkerSample], Sequence[WorkerSample]]:
    """Those that are shown, and those that are not: a worker that is not well always comes first."""
    if rows is None or len(workers) <= rows:
        return workers, ()
    wanted = sorted(workers, key=lambda worker: (worker.state == "ready", worker.index))[: rows - 1]
    kept = {id(worker) for worker in wanted}
    return [one for one in workers if id(one) in kept], [one for one in workers if id(one) not in kept]


def _columns_for(
    workers: Sequence[WorkerSample], speed: Mapping[tuple[str, int], Rates] | None, server: str, width: int
) -> list[Column]:
    """The columns that fit, without the least important ones where not all do."""
    sizes = {}
    for column in COLUMNS:
        texts = [column.text(one, None if speed is None else speed.get((server, one.incarnation))) for one in workers]
        sizes[column.title] = max(len(text) for text in (column.title, *texts)) + GAP_CELLS
    columns = list(COLUMNS)
    for column in sorted(COLUMNS, key=lambda column: column.keep, reverse=True):
        if sum(sizes[one.title] for one in columns) <= width or not column.keep:
            break
        columns.remove(column)
    return columns


def _cell(column: Column, worker: WorkerSample, rate: Rates | None) -> Text:
    text = column.text(worker, rate)
    if column.title == "state":
        return Text(text, style=STATE_STYLES.get(text, ""))
    beat = worker.heartbeat_age
    if column.title == "heartbeat" and beat is not None and beat > STALE_SECONDS and worker.state != "dead":
        return Text(text, style="bold red")
    return Text(text, style="dim" if text in ("0", "-") else "")
