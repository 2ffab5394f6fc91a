"""SIGABRT to the guardian: what a service manager's watchdog does about a supervisor that hangs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from processes.harness import SPAWN_CHILDREN, Stubs
from whole.harness import tagged

Make = Callable[..., Stubs]


@pytest.mark.parametrize("stopped", [False, True])
def test_the_supervisors_stack_is_written_then_nothing_is_left(stubs: Make, stopped: bool) -> None:
    """Also when it does not run: it is continued for that. Workers and the app's children are gone, the status is 1."""
    service = stubs(workers=2, env={"STUB_BOOT": SPAWN_CHILDREN}).start()
    supervisor = service.supervisor
    if stopped:
        os.kill(supervisor, signal.SIGSTOP)
    service.signal(signal.SIGABRT)
    assert service.wait() == 1
    assert tagged(service.tag) == {}
    assert "Fatal Python error: Aborted" in service.text
    assert "supervisor/loop.py" in service.text
    assert f"the supervisor, pid {supervisor}, was killed by SIGABRT" in service.text


def test_a_supervisor_that_cannot_write_its_stack_is_killed_all_the_same(stubs: Make) -> None:
    """Nobody reads the log, so writing the stack never ends."""
    reader, writer = os.pipe()
    service = stubs(workers=1)
    try:
        service.start(stderr=writer)
        os.set_blocking(writer, False)
        with pytest.raises(BlockingIOError):
            while True:
                os.write(writer, bytes(4096))
        os.set_blocking(writer, True)  # the flag is the open file's, which the service writes to as well
        service.signal(signal.SIGABRT)
        assert service.wait() == 1
        assert tagged(service.tag) == {}
    finally:
        os.close(reader)
        os.close(writer)


def test_an_app_may_switch_its_own_fault_handler_on(stubs: Make) -> None:
    """The supervisor's does not stand in its way: the worker's stack is written when it crashes."""
    crash = """
        import faulthandler, os, signal
        if not (folder / "stack").exists():
            faulthandler.enable((folder / "stack").open("w"))
            os.kill(os.getpid(), signal.SIGSEGV)
    """
    service = stubs(workers=1, env={"STUB_BOOT": crash}).start()
    assert "killed by SIGSEGV" in service.text
    assert "Segmentation fault" in (service.folder / "stack").read_text()
