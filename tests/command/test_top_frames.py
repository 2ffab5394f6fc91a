"""Frames of `top` from samples made up for the purpose: rates, what fits, and what stands out."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from ops import tables, top
from ops.sample import Rates, Sample, ServerSample, WorkerSample, rates
from ops.service import Service, State

SERVICE = Service(Path("/run/x"), "running", 4321, None, 1_800_000_000, "1.2.3", {})


def worker(index: int, *, incarnation: int = 0, state: str = "ready", requests: int = 0, **more: int) -> WorkerSample:
    return WorkerSample(index, 1000 + index, incarnation or index + 1, state, 0, requests=requests, **more)


def sample(at: float, *workers: WorkerSample, live: int = 0, gone: int = 0, servers: int = 1) -> Sample:
    names = [f"server-{number}" for number in range(servers)]
    return Sample(at, tuple(ServerSample(name, "127.0.0.1:8000", workers, live, gone, 1000) for name in names))


def lines(
    now: Sample | None,
    before: Sample | None = None,
    *,
    width: int = 160,
    height: int | None = None,
    state: State = "running",
) -> list[str]:
    service = Service(Path("/run/x"), state, 4321, None, 1_800_000_000, "1.2.3", {})
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(top.frame(service, now, before, width=width, height=height, wall=1_800_000_100))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in text.splitlines()]


def test_rates_are_what_came_between_two_looks() -> None:
    """Within one incarnation; a new one began at 0, and a counter that seems to run back counts as nothing."""
    before = sample(10.0, worker(0, requests=100, relayed_out=10), worker(1, requests=50), worker(2, requests=9))
    after = sample(
        12.0, worker(0, requests=160, relayed_out=14), worker(1, incarnation=9, requests=7), worker(2, requests=8)
    )
    assert rates(before, after) == {
        ("server-0", 1): Rates(30.0, 2.0, 0.0),
        ("server-0", 9): Rates(3.5, 0.0, 0.0),
        ("server-0", 3): Rates(0.0, 0.0, 0.0),
    }
    assert rates(None, after) is None
    assert rates(after, after) is None


def test_a_frame_says_what_there_is() -> None:
    """Totals, rates, claims by state, and a row for each worker."""
    before = sample(10.0, worker(0, requests=100), worker(1))
    after = sample(
        11.0,
        worker(0, requests=225, sessions=30, in_flight=2, relayed_out=3, connections=7, rss_bytes=50 * 2**20),
        worker(1, state="draining", sessions=5),
        live=40,
        gone=2,
    )
    shown = lines(after, before)
    assert shown[0] == "supervisor 4321, since 2027-01-15T08:00:00Z, version 1.2.3    2027-01-15T08:01:40Z"
    assert shown[2] == (
        "server-0 on 127.0.0.1:8000: 1 of 2 workers ready, 35 sessions, 2 in flight, 125 requests/s, 3.0 relays/s"
    )
    assert shown[3].endswith(" 40 live (5 of them ended), 2 gone, 4.2% of 1000")
    assert shown[6].split() == ["0", "1000", "ready", "30", "125", "3.0", "0", "2", "7", "-", "50", "MiB", "0", "225"]
    assert shown[7].split() == ["1", "1001", "draining", "5", "0", "0", "0", "0", "0", "-", "-", "0", "0"]
    assert "requests/s" not in lines(after)[2]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("stopped", "supervisor 4321 is stopped by a signal: deaths are not noticed until `kill -CONT 4321`"),
        ("dead", "supervisor 4321 is dead and did not clean up"),
        ("starting", "supervisor 4321 is starting"),
    ],
)
def test_an_unusual_supervisor_is_said(state: State, words: str) -> None:
    """In a line of its own, also where there is nothing else to show."""
    assert any(words in line for line in lines(sample(1.0, worker(0)), state=state))
    assert any(words in line for line in lines(None, state=state))


@pytest.mark.parametrize("width", [40, 60, 80, 100, 132, 200])
@pytest.mark.parametrize(("height", "servers"), [(11, 1), (14, 1), (24, 1), (24, 2), (50, 3)])
def test_a_frame_fits_its_terminal(width: int, height: int, servers: int) -> None:
    """Narrow ones lose columns, low ones rows; a worker that is not well is never among those."""
    workers = [worker(index, requests=10**9, sessions=12345, relayed_in=10**7) for index in range(120)]
    workers[77] = worker(77, state="backoff")
    workers[119] = worker(119, state="exited", sessions=3)
    shown = lines(
        sample(1.0, *workers, live=500, gone=400, servers=servers), width=width, height=height, state="stopped"
    )
    assert len(shown) <= height
    assert max(map(len, shown)) <= width
    heads = next(line for line in shown if line.startswith("worker"))
    assert "\u2026" not in heads
    for word in ("worker", "state", "sessions", "req/s"):
        assert word in heads
    rows = [line.split() for line in shown if re.match(r" *\d+ ", line)]
    numbers = [row[0] for row in rows]
    if height > 11:
        assert numbers.count("77") == numbers.count("119") == servers
        assert sum(f"and {120 - len(rows) // servers} more workers: ready" in line for line in shown) == servers


def test_all_is_shown_where_there_is_room() -> None:
    """Without a terminal there is no end to it."""
    shown = lines(sample(1.0, *(worker(index) for index in range(120))))
    assert sum(line.strip()[:1].isdigit() for line in shown) == 120
    assert "more workers" not in "\n".join(shown)


@pytest.mark.parametrize("height", [8, 9, 10, 12])
def test_no_room_is_given_away(height: int) -> None:
    """Four workers are shown where four fit, and otherwise as many as leave room for the line about the others."""
    shown = lines(sample(1.0, *(worker(index) for index in range(4))), height=height)
    rows = sum(line.strip()[:1].isdigit() for line in shown)
    assert (len(shown), rows) == ((10, 4) if height >= 10 else (height, height - 7))


@pytest.mark.parametrize(
    ("width", "heads"),
    [
        (None, "server session state worker incarnation opened last used digest"),
        (140, "server session state worker incarnation opened last used digest"),
        (120, "server session state worker incarnation opened ago used ago digest"),
        (90, "server session state worker incarnation opened ago used ago"),
        (60, "session state worker opened ago used ago"),
    ],
)
def test_claims_fit_their_terminal(width: int | None, heads: str) -> None:
    """Narrow ones lose what matters least, and nothing is cut."""
    entry = {"server": "counter", "session": "0f8fad5b", "state": "live", "worker": 119, "incarnation": 123456}
    entry |= {"opened_at": "2027-01-15T08:00:00Z", "last_used_at": "2027-01-15T08:01:00Z", "digest": "0" * 32}
    console = Console(width=width or 200, file=io.StringIO(), color_system=None)
    console.print(tables.claims([entry] * 3, now=1_800_000_100, rows=2, width=width))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    found = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    assert found[0] == heads
    assert "\u2026" not in text
    assert found[-1] == "3 claims, the first 2 shown"
    assert ("1 min" in text or "2 min" in text or "100 s" in text) is ("ago" in heads)
