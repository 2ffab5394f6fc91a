"""Real servers and their real clients: sessions on plain workers, and on gym-supervise's, with one line of config."""

from __future__ import annotations

from pathlib import Path

import pytest
from clients.environments import CHROMIUM
from clients.rows import ROWS, Row
from clients.running import accepting_workers, access_lines, plain, play, supervised
from clients.table import TABLE


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_sessions(row: Row, tmp_path: Path) -> None:
    """Every session is right, though its requests were accepted by more than one worker; plain workers lose them."""
    if row.player[0] == "browser.py" and CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with supervised(row, tmp_path) as service:
        for mode in row.modes:
            before = len(access_lines(service))
            errors = play(row, service.url, mode)
            spread = accepting_workers(access_lines(service)[before:])
            TABLE.note(row.name, mode, errors, several=sum(len(workers) > 1 for workers in spread.values()))
            assert errors == [None] * row.sessions
            if mode in row.spread:
                assert len(spread) >= row.sessions * 0.9
                assert all(len(workers) > 1 for workers in spread.values()), spread
            if "websocket" not in row.player:  # there a session is one connection
                assert sum(seat.relayed_in for seat in service.rows().values()) > 0
    with plain(row, tmp_path) as url:
        errors = play(row, url, row.modes[0], seconds=10)
        TABLE.note(row.name, "plain", errors)
