"""A worker whose event loop hangs: where it hangs is in the log before it is killed; nobody else is."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from whole.harness import Service, eventually

Make = Callable[..., Service]
APP = "whole.hanging:gym"


def ask_in_vain(service: Service, path: str) -> socket.socket:
    """A request that gets no answer; the connection it is on."""
    client = socket.create_connection(("127.0.0.1", service.port))
    client.sendall(f"GET {path} HTTP/1.1\r\nhost: test\r\n\r\n".encode())
    return client


@pytest.mark.parametrize("path", ["/loop", "/gil"])
def test_a_worker_that_hangs_is_killed_with_its_stacks_in_the_log(service: Make, path: str) -> None:
    """Also when it holds the GIL: the line that hangs, the last beat, the sessions lost, and why, in its row."""
    running = service(APP, workers=1, timeouts={"stall_seconds": 1.5}).start()
    connection = running.connect()
    for n in range(3):
        assert connection.ask("POST", "/seed_session", body={"n": n})[0] == 200
    ((pid, row),) = running.rows().items()
    with ask_in_vain(running, path):
        eventually(lambda: running.rows() and pid not in running.rows(), "its successor")
    running.wait_ready()
    text = running.log.read_text()
    function = {"/loop": "hang_in_the_loop", "/gil": "hang_with_the_gil"}[path]
    hangs, kill = text.index(f"worker 0, pid {pid}, hangs, its threads"), text.index(f"killing worker 0, pid {pid}")
    assert hangs < text.index(f"in {function}") < kill
    assert "it has not beaten for 1.5 s (stall_seconds); 3 open sessions are lost" in text
    with running.segment() as segment:
        dead = segment.ring.row(row.incarnation)
    assert dead is not None
    assert dead.reason.startswith("has not beaten for 1.5 s")
    assert running.stop() == 0


def test_a_worker_that_is_stopped_is_killed_without_stacks(service: Make) -> None:
    """It cannot say where it is; that is waited for only so long, and the others are served meanwhile."""
    running = service(APP, workers=2, timeouts={"stall_seconds": 1.0}).start()
    victim = next(iter(running.rows()))
    os.kill(victim, signal.SIGSTOP)
    eventually(lambda: victim not in running.rows(), "its death")
    running.wait_ready()
    assert "; its stacks could not be had" in running.log.read_text()
    assert running.stop() == 0


@pytest.mark.parametrize("who", ["the supervisor", "everybody"])
def test_a_pause_kills_nobody(service: Make, who: str) -> None:
    """SIGSTOP for longer than stall_seconds, then SIGCONT: the same workers go on, and are still watched over."""
    running = service(APP, workers=2, timeouts={"stall_seconds": 1.0}).start()
    workers = list(running.rows())
    paused = [running.facts["pid"], *(workers if who == "everybody" else [])]
    for pid in paused:
        os.kill(pid, signal.SIGSTOP)
    pass_time(2.5)
    for pid in paused:
        os.kill(pid, signal.SIGCONT)
    pass_time(2.0)
    assert list(running.rows()) == workers
    assert "hangs" not in running.log.read_text()
    with ask_in_vain(running, "/loop"):
        eventually(lambda: "hangs, its threads" in running.log.read_text(), "the watch to go on")
    assert running.stop() == 0


def test_a_slow_boot_is_no_stall(service: Make, tmp_path: Path) -> None:
    """Importing takes longer than stall_seconds: nobody is killed, boot_seconds are another time."""
    running = service("whole.gated:app", workers=2, env={"GATE": str(tmp_path)}, timeouts={"stall_seconds": 1.0})
    running.start(ready=False)
    eventually(lambda: (tmp_path / "first").exists(), "the first import")
    pass_time(2.5)
    (tmp_path / "open").write_text("")
    running.wait_ready()
    assert [seat.restarts for seat in running.seats()] == [0, 0]
    assert running.stop() == 0


def pass_time(seconds: float) -> None:
    """What is tested is what does not happen meanwhile."""
    end = time.monotonic() + seconds
    eventually(lambda: time.monotonic() >= end, "the end of the pause", seconds + 10)


@pytest.mark.soak
def test_twenty_seconds_of_computing_are_no_stall(service: Make) -> None:
    """At the default: the GIL held all the while, nobody killed, the answer given."""
    running = service(APP, workers=1).start()
    before = list(running.rows())
    status, _, body = running.connect().ask("GET", "/compute?seconds=20")
    assert (status, body) == (200, b"done")
    assert list(running.rows()) == before
    assert running.stop() == 0


def test_a_computation_shorter_than_stall_seconds_is_left_alone(service: Make) -> None:
    """The silence ends with the next beat, and does not add up."""
    running = service(APP, workers=1, timeouts={"stall_seconds": 3.0}).start()
    before = list(running.rows())
    for _ in range(2):
        assert running.connect().ask("GET", "/compute?seconds=1.6")[0] == 200
    assert list(running.rows()) == before
    workers = json.loads(running.run("status", "--json").stdout)["servers"]["app"]["workers"]
    assert [worker["restarts"] for worker in workers] == [0]
    assert running.stop() == 0
