"""The whole service as PID 1 of a container, into which others come as well."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from processes.harness import SPAWN_CHILDREN, Stubs, children
from processes.namespaces import UNSHARE, is_first, needs_namespaces
from whole.harness import eventually, tagged

Make = Callable[..., Stubs]

pytestmark = needs_namespaces


@pytest.fixture
def container(stubs: Make) -> tuple[Stubs, int]:
    """A service in a pid namespace of its own, ready, and the pid of its first process as seen from outside."""
    service = stubs(workers=2, env={"STUB_BOOT": SPAWN_CHILDREN}).start(ready=False, wrap=UNSHARE)
    eventually(lambda: service.text.count("is ready") == 2, "both workers")
    return service, next(pid for pid in tagged(service.tag) if is_first(pid))


def test_what_docker_exec_leaves_is_reaped(container: tuple[Stubs, int]) -> None:
    """A shell from outside starts something and goes: PID 1 inherits it, leaves it alone and reaps it; all serve on."""
    service, first = container
    before = set(children(first))
    sleep = "[sys.executable, '-S', '-c', 'import sys; sys.stdin.read()']"
    code = f"import subprocess, sys; print(subprocess.Popen({sleep}, stdin=0, start_new_session=True).pid, flush=True)"
    enter = ["nsenter", f"--target={first}", "--pid", "--mount", sys.executable, "-S", "-c", code]
    with subprocess.Popen(enter, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline()
        eventually(lambda: len(set(children(first)) - before) == 1, "PID 1 to inherit it")
        (orphan,) = set(children(first)) - before
        assert Path(f"/proc/{orphan}/stat").read_text().rpartition(")")[2].split()[0] in "SR"
        assert shell.stdin is not None
        shell.stdin.close()
        eventually(lambda: set(children(first)) == before, "it to be reaped")
    assert service.text.count("is ready") == 2
    assert "is gone" not in service.text


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGQUIT"])
def test_the_kernels_protection_of_pid_1_keeps_no_stop_away(container: tuple[Stubs, int], name: str) -> None:
    """Signals without a handler do not reach a first process; these end it, with all that the app started."""
    service, first = container
    os.kill(first, getattr(signal, name))
    assert service.wait() == 0
    assert tagged(service.tag) == {}


def test_a_killed_supervisor_ends_the_container(container: tuple[Stubs, int]) -> None:
    """With status 1 and without waiting for anybody, so that whoever runs it starts it anew."""
    service, first = container
    os.kill(children(first)[0], signal.SIGKILL)
    assert service.wait() == 1
    assert tagged(service.tag) == {}
