"""The REPL server: a process for each session, and none left, however sessions and workers end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from running_examples.clients import Client
from running_examples.services import example
from whole.harness import Service, eventually, tagged

Start = Callable[..., Service]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the example; afterwards nothing of it may be left."""
    made: list[Service] = []

    def begin(**changes: Any) -> Service:
        made.append(example(tmp_path / str(len(made)), "repl", **changes).start())
        return made[-1]

    yield begin
    left = [entry for service in made for entry in service.cleanup()]
    assert left == [], [service.log.read_text() for service in made]


def processes(service: Service) -> int:
    """Processes of the service beyond its own: guardian, supervisor, workers."""
    return len(tagged(service.tag)) - 2 - service.workers


def played(service: Service, number: int, *, close: bool = True) -> bool:
    """One episode: a variable that lives from request to request, each on a new connection."""
    client = Client()
    status, seed = client.post(service.connect(), "/seed_session")
    assert status == 200, seed
    client.post(service.connect(), "/execute", {"code": f"x = {number}"})
    _, reply = client.post(service.connect(), "/execute", {"code": "x += 1\nprint(x, end='')"})
    assert reply == {"output": str(number + 1), "error": None}, reply
    _, reply = client.post(service.connect(), "/execute", {"code": "print(1 / 0)"})
    assert "ZeroDivisionError" in reply["error"]
    _, result = client.post(service.connect(), "/verify", {"expression": "x", "expected": number + 1})
    if close:
        client.post(service.connect(), "/close_session")
    return bool(result["reward"] == 1.0)


def test_every_episode_scores_and_a_stop_leaves_no_process(start: Start) -> None:
    """Forty episodes, half of them never closed: all right; after the stop not one process is there."""
    service = start()
    with ThreadPoolExecutor(8) as pool:
        scores = list(pool.map(lambda number: played(service, number, close=number % 2 == 0), range(40)))
    assert scores == [True] * 40
    eventually(lambda: processes(service) == 20, "the closed sessions' processes to be gone, and no others")
    assert service.stop() == 0
    eventually(lambda: not tagged(service.tag), "every process to be gone")


@pytest.mark.soak
def test_200_of_200_episodes(start: Start) -> None:
    """At 4 workers, 32 at a time."""
    service = start()
    with ThreadPoolExecutor(32) as pool:
        scores = list(pool.map(lambda number: played(service, number, close=number % 4 != 0), range(200)))
    print(f"REPL at 4 workers: {sum(scores)} of 200 episodes")
    assert scores == [True] * 200
    assert service.stop() == 0
    eventually(lambda: not tagged(service.tag), "every process to be gone")


def test_a_killed_worker_leaves_no_process(start: Start) -> None:
    """Its sessions' processes go with it; the others' go on."""
    service = start()
    clients = []
    for number in range(16):
        client = Client()
        assert client.post(service.connect(), "/seed_session")[0] == 200
        client.post(service.connect(), "/execute", {"code": f"x = {number}"})
        clients.append(client)
    assert processes(service) == 16
    victim = next(iter(service.rows()))
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: victim not in service.rows(), "the death to be seen")
    service.wait_ready()
    eventually(lambda: processes(service) == 12, "the dead worker's four processes to be gone, and no others")
    seen = [client.post(service.connect(), "/execute", {"code": "print(x)"}) for client in clients]
    assert [status for status, _ in seen].count(410) == 4
    assert all(reply["output"].strip() == str(n) for n, (status, reply) in enumerate(seen) if status == 200)
    assert service.stop() == 0


def test_a_client_that_went_away_leaves_no_process(start: Start) -> None:
    """A session without requests ends after `open_idle_seconds`, and its process with the claim."""
    service = start(affinity={"open_idle_seconds": 0.5})
    assert Client().post(service.connect(), "/seed_session")[0] == 200
    eventually(lambda: processes(service) == 0, "the process to be gone")
    assert service.stop() == 0
