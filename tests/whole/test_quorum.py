"""The start of a fleet: the first worker that is up does not get every session."""

from __future__ import annotations

import asyncio
import http.client
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from whole.harness import Service, eventually

from shmclaims import SeatState, SeatView
from supervisor.worker import quorum

Make = Callable[..., Service]
E, B, R, D, S, W, F = (
    SeatState.EMPTY,
    SeatState.BOOTING,
    SeatState.READY,
    SeatState.DRAINING,
    SeatState.STOPPING,
    SeatState.BACKOFF,
    SeatState.FAILED,
)


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], True),
        ([B], False),
        ([R], True),
        ([B, B, B], False),
        ([R, B, B], False),
        ([R, R, B], True),
        ([R, B, W], True),
        ([W, W, W], True),
        ([F], True),
        ([E, S], True),
        ([D, B], True),
        ([B] * 4 + [R] * 4, True),
        ([B] * 5 + [R] * 4, False),
    ],
)
def test_reached(others: list[SeatState], expected: bool) -> None:
    """More are up than are to come; this worker counts as up, whatever its seat still says."""
    seats = [SeatView(0, B, 1, 0)] + [SeatView(n, state, n + 1, 0) for n, state in enumerate(others, 1)]
    assert quorum.reached(seats, 0) is expected


def test_nobody_is_waited_for_for_ever() -> None:
    """A sibling that never gets out of its boot holds nobody up."""
    seats = [SeatView(0, B, 1, 0), SeatView(1, B, 2, 0)]
    asyncio.run(quorum.wait(lambda: seats, 0, longest_seconds=0.01))


def first_is_ready(service: Service) -> bool:
    """One worker is ready, the others boot."""
    return sorted(seat.state.name for seat in service.seats()) == ["BOOTING"] * (service.workers - 1) + ["READY"]


def test_starts_wait_for_the_others(service: Make, tmp_path: Path) -> None:
    """Forty starts that come when one of three workers is up are shared by two at least, and level between those."""
    running = service("whole.gated:app", workers=3, env={"GATE": str(tmp_path)}).start(ready=False)
    eventually(lambda: first_is_ready(running), "the first worker")

    def seed(number: int) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
        connection.request("POST", "/seed_session", body=b"{}")
        status = connection.getresponse().status
        connection.close()
        return status

    with ThreadPoolExecutor(40) as pool:
        asked = [pool.submit(seed, number) for number in range(40)]
        eventually(lambda: queued(running.port) == 40, "the connections in the listener's queue")
        (tmp_path / "opening").write_text("")
        os.rename(tmp_path / "opening", tmp_path / "open")
        assert {one.result() for one in asked} == {200}
    running.wait_ready()
    counts = [row.sessions for row in running.rows().values()]
    assert sum(counts) == 40
    assert max(counts) <= 20 + 2, counts  # a third that was up in time has its part of them


def test_who_fails_to_boot_is_not_waited_for(service: Make, tmp_path: Path) -> None:
    """The worker that is up serves while the other fails again and again."""
    running = service("whole.gated:app", workers=2, env={"GATE": str(tmp_path)}, boot_tries=50).start(ready=False)
    eventually(lambda: first_is_ready(running), "the first worker")
    (tmp_path / "opening").write_text("fail")
    os.rename(tmp_path / "opening", tmp_path / "open")
    status, _, _ = running.connect().ask("POST", "/seed_session", body={})
    assert status == 200


def queued(port: int) -> int:
    """Connections to a loopback port that nobody has accepted: the listener's receive queue is their number."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, queues, *_ = line.split()
        if state == "0A" and int(local.split(":")[1], 16) == port:
            return int(queues.split(":")[1], 16)
    return -1
