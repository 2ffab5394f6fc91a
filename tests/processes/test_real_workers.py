"""The processes with the real worker in them: what the stubs show must hold for uvicorn and an app as well."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from processes.harness import children, descriptors
from processes.terminal import Terminal
from processes.test_blocked_log import fill
from whole.harness import COMMAND, REPO, TAG, Service, eventually

Make = Callable[..., Service]
PLAIN = {"app": "processes.apps:app", "affinity": {"preset": "none"}}


def environment(service: Service) -> dict[str, str]:
    """What it is started with, by a test that gives it other streams than its log."""
    service.log.touch()
    return {**os.environ, TAG: service.tag}


def test_ctrl_c_lets_a_request_end(service: Make) -> None:
    """One Ctrl-C in a terminal: the request in flight gets its reply, then the service ends with 0."""
    gym = service("whole.apps:gym", workers=2, timeouts={"graceful_seconds": 60})
    replies: list[int] = []
    with Terminal([COMMAND, "serve", str(gym.config)], environment(gym)) as terminal:
        gym.process = terminal
        gym.wait_ready()
        client = threading.Thread(target=lambda: replies.append(gym.connect().ask("GET", "/slow?seconds=1")[0]))
        client.start()
        eventually(lambda: sum(row.in_flight for row in gym.rows().values()), "the request to be in flight")
        terminal.press(b"\x03")
        shown = terminal.read_all()
        assert gym.wait() == 0
    client.join(10)
    assert replies == [200]
    assert shown.count("stopping, within") == 1
    assert "Traceback" not in shown


def test_a_worker_does_not_mind_the_terminals_interrupt(service: Make) -> None:
    """SIGINT to a worker is no order: whoever stops the service tells the supervisor."""
    gym = service(**PLAIN, workers=1).start()
    (pid,) = gym.rows()
    os.kill(pid, signal.SIGINT)
    assert gym.connect().ask("GET", "/whoami")[2] == str(pid).encode()
    assert gym.stop() == 0


def test_a_repl_of_the_app_can_be_interrupted(service: Make) -> None:
    """Also where the service was started with SIGINT ignored."""
    gym = service(**PLAIN, workers=1)
    with gym.log.open("ab") as log:
        gym.process = subprocess.Popen(
            [COMMAND, "serve", str(gym.config)],
            stdout=log,
            stderr=log,
            env=environment(gym),
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )
    gym.wait_ready()
    assert gym.connect().ask("GET", "/repl")[2] == b"interrupted\n"
    assert gym.stop() == 0


def test_a_sigterm_to_one_worker(service: Make) -> None:
    """It ends by itself, in order, and is replaced; the supervisor and the other one go on."""
    gym = service(**PLAIN, workers=2).start()
    victim, other = gym.rows()
    os.kill(victim, signal.SIGTERM)
    eventually(lambda: victim not in gym.rows(), "the worker to end")
    gym.wait_ready()
    assert other in gym.rows()
    text = gym.log.read_text()
    assert f"worker 0 is gone, pid {victim}: exit status 0" in text
    assert "killing" not in text
    assert gym.stop() == 0


def test_a_stop_during_a_start_up_that_never_ends(service: Make) -> None:
    """The lifespan waits for ever; the service ends all the same, within its time."""
    gym = service(
        "processes.apps:never_ready", workers=1, affinity={"preset": "none"}, timeouts={"graceful_seconds": 2}
    )
    gym.start(ready=False)
    eventually(lambda: "waiting in the lifespan" in gym.log.read_text(), "the start-up to begin")
    assert gym.stop() == 0


def test_a_log_that_nobody_reads_keeps_nobody_from_serving(service: Make) -> None:
    """Access lines go nowhere; requests are answered, deaths mended, and a stop stops."""
    gym = service(**PLAIN, workers=2)
    reading, writing = os.pipe()
    try:
        gym.process = subprocess.Popen(
            [COMMAND, "serve", str(gym.config)], stdout=writing, stderr=writing, env=environment(gym)
        )
        gym.wait_ready()
        fill(writing)
        for _ in range(200):
            client = http.client.HTTPConnection("127.0.0.1", gym.port, timeout=10)
            client.request("GET", "/whoami")
            assert client.getresponse().status == 200
            client.close()
        victim = min(gym.rows())
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: victim not in gym.rows() and len(gym.rows()) == 2, "the replacement")
        assert gym.stop() == 0
    finally:
        os.close(reading)
        os.close(writing)


def test_an_upgrade_under_a_running_service_does_not_mix_versions(service: Make, tmp_path: Path) -> None:
    """What is on the disk by then is the next start's affair: a replacement has the code of its supervisor."""
    installed = tmp_path / "installed"
    for name in ("supervisor", "shmclaims", "server_adapters"):
        shutil.copytree(REPO / name, installed / name)
    shutil.copy(REPO / "gym_supervise.py", installed)
    gym = service(**PLAIN, workers=1)
    with gym.log.open("ab") as log:
        gym.process = subprocess.Popen(
            [sys.executable, "-c", "from gym_supervise import main; main()", "serve", str(gym.config)],
            stdout=log,
            stderr=log,
            env={**environment(gym), "PYTHONPATH": str(installed)},
        )
    gym.wait_ready()
    for module in installed.rglob("*.py"):
        module.write_text("raise ImportError('the next version')")
    os.kill(min(gym.rows()), signal.SIGKILL)
    eventually(lambda: sum(seat.restarts for seat in gym.seats()) == 1, "the replacement")
    gym.wait_ready()
    assert gym.connect().ask("GET", "/whoami")[0] == 200
    assert gym.stop() == 0


@pytest.mark.parametrize("deaths", [8, pytest.param(500, marks=pytest.mark.soak)])
def test_deaths_of_real_workers_leave_nothing(service: Make, deaths: int) -> None:
    """The supervisor's descriptors and children are as many as before, and so are the files of its folder."""
    gym = service(**PLAIN, workers=4).start()
    supervisor = gym.facts["pid"]

    def counts() -> tuple[int, int, int]:
        return len(descriptors(supervisor)), len(children(supervisor)), len(list(gym.runtime_dir.iterdir()))

    before = counts()
    killed = 0
    while killed < deaths:
        for pid in gym.rows():
            os.kill(pid, signal.SIGKILL)
            killed += 1
        eventually(lambda: sum(seat.restarts for seat in gym.seats()) >= killed, "the replacements", 60)
        gym.wait_ready()
    eventually(lambda: counts()[1] == 4, "the last dead to be reaped")
    assert counts() == before
    assert gym.stop() == 0
