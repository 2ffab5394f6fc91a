"""A worker is killed under real clients: its sessions end as each client understands it, and no other does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from clients.rows import DEATHS, Row
from clients.running import player, supervised
from clients.table import TABLE
from whole.harness import Service, eventually


def counted(texts: list[str]) -> str:
    """Equal outcomes together."""
    return "; ".join(f"{number} x {text}" for text, number in Counter(texts).most_common())


def sessions_of(service: Service, incarnation: int) -> list[str]:
    """Its sessions; beside their claims are those of files that a page's frames name."""
    claims = json.loads(service.run("claims", "--json", "--state", "live").stdout)
    return [one["digest"] for one in claims if one["incarnation"] == incarnation and "/" not in (one["session"] or "")]


@pytest.mark.parametrize("row", DEATHS, ids=lambda row: row.name)
def test_a_worker_is_killed(row: Row, tmp_path: Path) -> None:
    """Of its sessions each client hears; those of other workers are as they were, or connect to them again."""
    with supervised(row, tmp_path) as service:
        command, environment = player(row, service.url, "close", "death")
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as playing:
            try:
                assert playing.stdin is not None
                assert playing.stdout is not None
                assert playing.stdout.readline() == "running\n"
                seat = max(service.rows().values(), key=lambda seat: seat.sessions)
                victim, lost = seat.pid, len(sessions_of(service, seat.incarnation))
                os.kill(victim, signal.SIGKILL)
                playing.stdin.write("killed\n")
                playing.stdin.flush()
                eventually(lambda: victim not in service.rows(), "the death to be seen")
                service.wait_ready(120)
                found: list[list[Any]] = json.loads(playing.stdout.readline())
            finally:
                playing.kill()
        others = [one for one in found if one[2].endswith(("right", "resumed"))]
        ours = [one for one in found if not one[2].endswith(("right", "resumed"))]
        cut = [one for one in others if one[0] != "right"]
        slowest = max([one[1] for one in ours], default=0.0)
        how = f" ({counted([one[0] for one in cut])})" if cut else ""
        TABLE.note_death(
            row.name,
            f"{lost} of {len(found)} lost, and {len(ours) - lost} given up by their clients, whose connection was cut:"
            f" told within {slowest:g} s: {counted([one[0] for one in ours])}."
            f" Afterwards: {counted([one[2] for one in ours])}."
            f" Of the others {len(cut)} were cut off{how} and went on.",
        )
        # A client whose own connection was the dead worker's may give its session up, though that lives.
        assert 1 <= lost <= len(ours)
