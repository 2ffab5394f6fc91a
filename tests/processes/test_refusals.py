"""What keeps a service from starting, and the exit status of each."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from processes.harness import Stubs, descriptors
from whole.harness import eventually

Make = Callable[..., Stubs]


def test_a_second_supervisor_on_the_same_folder_is_refused(stubs: Make) -> None:
    """Status 4, naming the pid that has it; the first one is not disturbed."""
    service = stubs(workers=1).start()
    done = subprocess.run(
        service.command(), env=service.environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 4
    assert f"another supervisor, pid {service.supervisor}" in done.stderr
    assert service.states() == ["READY"]
    assert service.facts["pid"] == service.supervisor
    assert service.stop() == 0


def test_workers_do_not_hold_the_lock(stubs: Make) -> None:
    """Else a worker that outlived everything would keep the next supervisor out."""
    service = stubs(workers=1).start()
    lock = str(service.runtime_dir / "lock")
    assert lock in descriptors(service.supervisor).values()
    assert lock not in descriptors(service.pids()[0]).values()
    assert service.stop() == 0


def test_a_taken_port_is_refused(stubs: Make) -> None:
    """Also when the other side listens with SO_REUSEPORT: status 4, naming the address, and nothing stays behind."""
    service = stubs(workers=1)
    public = service.folder / "public.sock"
    service.servers["app"]["bind"] = f"unix:{public}"
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        service.servers["second"] = {**service.servers["app"], "bind": address}
        service.start(ready=False)
        assert service.wait() == 4
    assert f"bind {address}: found an address that is taken" in service.text
    assert not public.exists(), "the first server's socket is still there"
    assert os.listdir(service.runtime_dir) == ["lock"]


def test_a_port_that_gets_free_in_time_is_taken(stubs: Make) -> None:
    """A predecessor that is just ending is waited for."""
    other = socket.socket()
    other.bind(("127.0.0.1", 0))
    other.listen()
    service = stubs(workers=1, bind=f"127.0.0.1:{other.getsockname()[1]}").start(ready=False)
    eventually((service.runtime_dir / "lock").exists, "the service to begin")
    timer = threading.Timer(0.3, other.close)
    timer.start()
    service.wait_ready()
    timer.join()
    assert service.stop() == 0


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="mounting a small /dev/shm needs root")
def test_too_little_shared_memory_is_refused(stubs: Make) -> None:
    """Status 5 with the size found and the size needed, instead of a SIGBUS later."""
    script = 'mount -t tmpfs -o size=1m tmpfs /dev/shm; "$@"; status=$?; echo "left: $(ls -A /dev/shm)"; exit $status'
    service = stubs(workers=1)
    public = service.folder / "public.sock"
    service.servers["app"]["bind"] = f"unix:{public}"
    service.servers["big"] = {**service.servers["app"], "bind": "127.0.0.1:0", "claims": {"max_sessions": 50000}}
    service.start(ready=False, wrap=("unshare", "--mount", "sh", "-c", script, "sh"))
    assert service.wait() == 5
    assert "1.0 MiB" in service.text
    assert "max_sessions 50000" in service.text
    assert service.text.endswith("left: \n"), "the first server's segment is still there"
    assert not public.exists()
    assert os.listdir(service.runtime_dir) == ["lock"]


def test_an_unexpected_error_ends_with_status_1(stubs: Make) -> None:
    """With its traceback, and with nothing left."""
    service = stubs(workers=1)
    service.write_config()
    code = (
        "import sys; from supervisor import serve; from supervisor.config import load\n"
        "serve.Fleet = None\n"
        "sys.exit(serve.run(load(sys.argv[1])))"
    )
    command = [sys.executable, "-c", code, str(service.config)]
    done = subprocess.run(command, env=service.environment, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert "the supervisor failed" in done.stderr
    assert "TypeError" in done.stderr
    assert os.listdir(service.runtime_dir) == ["lock"]
