"""Start, failure to start, stop, and what is left of a crash."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from whole.harness import Service, eventually, tagged

APP = "whole.apps:gym"


def free(port: int) -> bool:
    """Whether nobody listens on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def test_a_stop_lets_relayed_requests_end(service: Callable[..., Service]) -> None:
    """TERM while requests run on both sides of a relay: each ends with its reply, then the service with 0."""
    gym = service(APP).start()
    _, headers, body = gym.connect().ask("POST", "/seed_session", body={"n": 1})
    cookie, owner = headers["set-cookie"].split(";")[0], json.loads(body)["pid"]
    results: list[Any] = []

    def ask(connection: Any) -> None:
        results.append(connection.ask("POST", "/slow?seconds=1.5", headers={"cookie": cookie})[0])

    threads = [threading.Thread(target=ask, args=(c,)) for c in gym.connections().values()]
    for thread in threads:
        thread.start()
    eventually(lambda: gym.rows()[owner].in_flight >= 4, "the requests to be with the owner")
    assert gym.stop() == 0
    for thread in threads:
        thread.join(10)
    assert results == [200] * 4


def test_a_stop_ends_within_its_time(service: Callable[..., Service]) -> None:
    """A request that never ends is cut at the deadline; the service still ends by itself."""
    gym = service(APP, timeouts={"graceful_seconds": 1.5}).start()
    ended = threading.Event()

    def ask() -> None:
        with contextlib.suppress(Exception):
            gym.connect().ask("GET", "/slow?seconds=300")
        ended.set()

    threading.Thread(target=ask).start()
    eventually(lambda: sum(row.in_flight for row in gym.rows().values()), "the request to be in flight")
    gym.stop()
    assert ended.wait(10)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_stops_at_once(service: Callable[..., Service], number: int) -> None:
    """The first one waits for what runs, the second does not."""
    gym = service(APP, timeouts={"graceful_seconds": 300}).start()

    def ask() -> None:
        with contextlib.suppress(Exception):
            gym.connect().ask("GET", "/slow?seconds=300")

    threading.Thread(target=ask).start()
    eventually(lambda: sum(row.in_flight for row in gym.rows().values()), "the request to be in flight")
    gym.signal(number)
    eventually(lambda: {seat.state.name for seat in gym.seats()} == {"STOPPING"}, "the stop to begin")
    assert gym.process is not None
    assert gym.process.poll() is None
    gym.signal(number)
    gym.wait(20)


@pytest.mark.parametrize("victim", ["guardian", "supervisor"])
def test_nothing_outlives_a_sigkill(service: Callable[..., Service], victim: str) -> None:
    """Workers and the app's children of all kinds go with guardian or supervisor; the next serve works at once."""
    gym = service("whole.children:app", affinity={"preset": "none"}).start()
    port = gym.port
    for connection in gym.connections().values():
        assert connection.ask("POST", "/spawn")[0] == 200
    # One that is in its exec has no environment for a moment.
    eventually(lambda: len(tagged(gym.tag)) >= 2 + 4 + 4 * 3, "every process to be seen")
    assert gym.process is not None
    pid = gym.process.pid if victim == "guardian" else gym.facts["pid"]
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not tagged(gym.tag), "every process of the tree to be gone", 10)
    print(f"gone after {time.monotonic() - began:.2f} s")
    eventually(lambda: free(port), "the port to be free", 10)
    gym.process.wait(10)
    gym.start()
    assert gym.connect().ask("GET", "/whoami")[0] == 200
    assert gym.stop() == 0


def test_a_second_service_is_refused(service: Callable[..., Service]) -> None:
    """On the same runtime folder, or on a taken port: status 4, with a reason, and the first one is not disturbed."""
    gym = service(APP, workers=2).start()
    again = gym.run("serve")
    assert again.returncode == 4
    assert str(gym.facts["pid"]) in again.stderr
    other = service(APP, workers=2, bind=f"127.0.0.1:{gym.port}")
    other.start(ready=False)
    assert other.wait() == 4
    assert str(gym.port) in other.log.read_text()
    assert gym.connect().ask("GET", "/whoami")[0] == 200
    assert gym.stop() == 0


def test_an_app_that_does_not_import(service: Callable[..., Service]) -> None:
    """After `boot_tries` tries: status 3, and its traceback once."""
    broken = service("whole.broken_import:app", boot_tries=2)
    broken.start(ready=False)
    assert broken.wait(60) == 3
    text = broken.log.read_text()
    assert text.count("Traceback (most recent call last)") == 1
    assert "broken_import.py" in text
    assert "supervisor/worker/" not in text


def test_an_app_whose_lifespan_fails(service: Callable[..., Service]) -> None:
    """A start-up that raises is a failed boot too."""
    broken = service("whole.broken_lifespan:app", boot_tries=2, affinity={"preset": "none"})
    broken.start(ready=False)
    assert broken.wait(60) == 3
    text = broken.log.read_text()
    assert text.count("Traceback (most recent call last)") == 1
    assert "RuntimeError: the lifespan fails here" in text


def test_a_start_up_that_never_ends_does_not_hold_a_stop_up(service: Callable[..., Service]) -> None:
    """A stop waits for requests, not for workers that serve nothing yet."""
    endless = service("whole.endless:app", affinity={"preset": "none"}, timeouts={"graceful_seconds": 300})
    endless.start(ready=False)
    eventually(
        lambda: endless.log.exists() and endless.log.read_text().count("starting for ever") == 4, "four start-ups"
    )
    assert endless.stop() == 0


@pytest.mark.parametrize(
    ("app", "options", "says"),
    [
        ("whole.children:app", {}, "affinity.cookie: found none"),
        ("whole.no_such_module:app", {}, "no module 'whole.no_such_module'"),
        ("whole.children:ap", {}, "has no 'ap'"),
        ("whole.children:SLEEP", {"factory": True}, "cannot be called"),
    ],
)
def test_a_mistake_in_the_config_has_no_traceback(
    service: Callable[..., Service], app: str, options: dict[str, Any], says: str
) -> None:
    """What is the config's fault says what was found and expected, not where Python was."""
    broken = service(app, boot_tries=1, **options)
    broken.start(ready=False)
    assert broken.wait(60) == 3
    text = broken.log.read_text()
    assert says in text
    assert "Traceback" not in text


def test_a_worker_that_fails_later_is_retried_for_ever(service: Callable[..., Service]) -> None:
    """Once the server was ready, boots that fail do not end the service: the other workers stay."""
    gym = service("whole.fails_later:app", workers=2, boot_tries=1, affinity={"preset": "none"})
    flag = gym.folder / "fail"
    gym.config.write_text(gym.config.read_text().replace('"workers"', f'"env": {{"FAIL_WHEN": "{flag}"}}, "workers"'))
    gym.start()
    flag.touch()
    victim, survivor = sorted(gym.rows())
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: any(seat.restarts >= 3 for seat in gym.seats()), "several failed boots")
    assert gym.process is not None
    assert gym.process.poll() is None
    assert survivor in gym.rows()
    flag.unlink()
    gym.wait_ready()
    assert gym.stop() == 0


def test_claims_of_a_stopped_supervisor(service: Callable[..., Service]) -> None:
    """`status` and `claims` read shared memory: a supervisor under SIGSTOP does not keep them."""
    gym = service(APP, workers=2).start()
    gym.connect().ask("POST", "/seed_session", body={"n": 1})
    pid = gym.facts["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        done = gym.run("claims", "--json")
        assert done.returncode == 0, done.stderr
        assert [claim["state"] for claim in json.loads(done.stdout)] == ["live"]
        assert "stopped" in done.stderr
        status = json.loads(gym.run("status", "--json").stdout)
        assert {worker["state"] for worker in status["servers"]["app"]["workers"]} == {"ready"}
    finally:
        os.kill(pid, signal.SIGCONT)
    assert gym.stop() == 0
    assert gym.run("status").returncode == 6


def test_stop_waits_until_it_is_gone(service: Callable[..., Service]) -> None:
    """`gym-supervise stop` returns when nothing is left."""
    gym = service(APP, workers=2).start()
    done: subprocess.CompletedProcess[str] = gym.run("stop")
    assert done.returncode == 0, done.stderr
    assert not tagged(gym.tag) or gym.wait(5) == 0
    assert gym.wait(5) == 0
