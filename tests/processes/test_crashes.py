"""SIGKILL to guardian or supervisor: nothing outlives it, and the next service works at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest
from processes.harness import CHILDREN_PER_WORKER, SPAWN_CHILDREN, Stubs, free
from whole.harness import eventually, tagged

Make = Callable[..., Stubs]
LISTEN = """
import socket
private = socket.socket(socket.AF_UNIX)
private.bind(spec.private_path)
private.listen()
"""


@pytest.mark.parametrize("victim", ["guardian", "supervisor"])
@pytest.mark.parametrize("state", ["running", "a worker stopped"])
def test_nothing_outlives_a_sigkill(stubs: Make, victim: str, state: str) -> None:
    """Workers and the app's children of all kinds are gone, also stopped ones, and the port is free."""
    service = stubs(workers=3, env={"STUB_BOOT": SPAWN_CHILDREN}).start()
    assert len(tagged(service.tag)) == 2 + 3 + 3 * CHILDREN_PER_WORKER
    port = service.port
    if state != "running":
        os.kill(service.pids()[0], signal.SIGSTOP)
    began = time.monotonic()
    os.kill(service.guardian if victim == "guardian" else service.supervisor, signal.SIGKILL)
    eventually(lambda: not tagged(service.tag), "every process to be gone", 2)
    eventually(lambda: free(port), "the port to be free", 2)
    print(f"gone after {time.monotonic() - began:.3f} s")
    status = service.wait()
    assert status == (-signal.SIGKILL if victim == "guardian" else 1)
    if victim == "supervisor":
        assert "was killed by SIGKILL" in service.text


@pytest.mark.parametrize("victim", ["guardian", "supervisor"])
def test_the_next_service_starts_while_the_last_one_is_still_dying(stubs: Make, victim: str) -> None:
    """Same folder, same port, at once: what the crashed one left is cleaned up, sockets and segments included."""
    service = stubs(workers=2, env={"STUB_BOOT": LISTEN}).start()
    first = service.facts
    service.servers["app"]["bind"] = f"127.0.0.1:{service.port}"
    old = service.process
    assert old is not None
    os.kill(service.guardian if victim == "guardian" else service.supervisor, signal.SIGKILL)
    if victim == "guardian":  # until the supervisor has noticed, the folder is its own
        eventually(lambda: not (service.runtime_dir / "supervisor.json").exists(), "the supervisor to end")
    service.start()
    old.wait(10)
    assert service.facts["pid"] != first["pid"]
    assert not os.path.exists("/dev/shm" + first["segments"]["app"])
    assert {path.name for path in service.runtime_dir.glob("*.sock")} == {"app.1.sock", "app.2.sock", "control.sock"}
    assert service.stop() == 0


def test_a_live_neighbour_is_left_alone(stubs: Make) -> None:
    """Cleaning up after a crash never touches another service of the same user."""
    neighbour = stubs(workers=1).start()
    crashed = stubs(workers=1).start()
    os.kill(crashed.supervisor, signal.SIGKILL)
    crashed.wait()
    crashed.start()
    assert neighbour.states() == ["READY"]
    with neighbour.segment() as segment:
        assert segment.supervisor_alive()
    assert crashed.stop() == 0
    assert neighbour.stop() == 0


def test_a_crashed_neighbours_segment_stays_for_its_operator(stubs: Make) -> None:
    """Another service's start removes it only when nothing leads there any more."""
    crashed = stubs(workers=1).start()
    segment = "/dev/shm" + crashed.facts["segments"]["app"]
    os.kill(crashed.supervisor, signal.SIGKILL)
    crashed.wait()
    neighbour = stubs(workers=1).start()
    assert os.path.exists(segment)
    assert neighbour.stop() == 0
    (crashed.runtime_dir / "supervisor.json").unlink()
    neighbour.start()
    assert not os.path.exists(segment)
    assert neighbour.stop() == 0
