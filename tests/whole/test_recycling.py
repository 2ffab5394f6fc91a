"""Workers that have served or grown enough are replaced: one at a time, after the drain, without losing a session."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from whole.harness import Service, eventually
from whole.load import Load, options, write_app

Make = Callable[..., Service]


def test_recycling_by_requests_costs_no_session(service: Make, tmp_path: Path) -> None:
    """Under load, several times over: every episode right, and never two on their way at once."""
    code = tmp_path / "code"
    write_app(code, "one")
    running = service("mine:app", **options(code, workers=3, recycle={"max_requests": 60})).start()
    first = set(running.rows())
    with Load(running) as load:
        eventually(lambda: not first & set(running.rows()), "all three to be recycled", 60)
    load.assert_all_right()
    text = running.log.read_text()
    steps = re.findall(r"(is to be replaced|had given its place up)", text)
    assert steps.count("is to be replaced") >= 3
    for one, two in zip(steps, steps[1:], strict=False):
        assert one != two, "two at once"
    assert "recycle.max_requests 60" in text
    assert "are cut" not in text
    assert running.stop() == 0


def test_recycling_by_memory(service: Make) -> None:
    """A worker that has grown too large is replaced, once: its successor has not."""
    running = service("whole.hanging:gym", workers=2, recycle={"max_rss_mib": 150}).start()
    before = set(running.rows())
    connection = running.connect()
    large = int(connection.ask("GET", "/whoami")[2])
    assert connection.ask("GET", "/grow?mib=160")[0] == 200
    connection.http.close()
    eventually(lambda: large not in running.rows(), "its end")
    assert before - {large} <= set(running.rows())
    assert "(recycle.max_rss_mib 150)" in running.log.read_text()
    assert running.log.read_text().count("is to be replaced") == 1
    assert running.stop() == 0
