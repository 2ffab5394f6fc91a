"""The guardian alone, with small functions in the supervisor's place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from processes.harness import PYTHONPATH, run_python
from processes.namespaces import UNSHARE, is_first, needs_namespaces
from whole.harness import TAG, eventually, tagged

HEAD = """
import os, signal, subprocess, sys, time
from supervisor.processes.guardian import FORWARDED, WAITED, guard

def say(text):
    os.write(1, text.encode() + b"\\n")
"""


class Guarded:
    """A process that runs `guard`, and its output line by line."""

    def __init__(self, code: str, wrap: tuple[str, ...] = ()) -> None:
        self.tag = uuid4().hex
        command = [*wrap, sys.executable, "-c", HEAD + textwrap.dedent(code)]
        environment = {**os.environ, "PYTHONPATH": PYTHONPATH, TAG: self.tag}
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    def line(self) -> str:
        """The next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> int:
        """Wait for the end."""
        return self.process.wait(20)


@pytest.fixture
def guarded() -> Iterator[type[Guarded]]:
    """Makes guarded processes; nothing of them may be left."""
    made: list[Guarded] = []

    class Made(Guarded):
        def __init__(self, code: str, wrap: tuple[str, ...] = ()) -> None:
            super().__init__(code, wrap)
            made.append(self)

    yield Made
    for one in made:
        one.process.kill()
        one.process.wait()
        assert one.process.stdout is not None
        one.process.stdout.close()
        left = tagged(one.tag)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left


@pytest.mark.parametrize("status", [0, 3, 6, 255])
def test_the_exit_status_is_the_supervisors(status: int) -> None:
    """Whatever it is."""
    assert run_python(f"{HEAD}\nsys.exit(guard(lambda guardian: {status}))").returncode == status


def test_a_launcher_that_ignores_its_children() -> None:
    """With SIGCHLD ignored, as exec leaves it, the kernel would tell nobody of an exit."""
    ignore = {"preexec_fn": lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)}
    assert run_python(f"{HEAD}\nsys.exit(guard(lambda guardian: 3))", **ignore).returncode == 3


def test_a_supervisor_that_raises_ends_with_status_1() -> None:
    """Its traceback is logged, not lost."""
    done = run_python(f"{HEAD}\nimport logging\nlogging.basicConfig()\nsys.exit(guard(lambda guardian: 1 / 0))")
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGTTIN", "SIGTTOU"])
def test_signals_are_forwarded_once(guarded: type[Guarded], name: str) -> None:
    """The supervisor gets each of them, from the guardian."""
    one = guarded(
        """
        def run(guardian):
            say("up")
            received = signal.sigwaitinfo(FORWARDED)
            say(f"{signal.Signals(received.si_signo).name} {received.si_pid == guardian}")
            say(str(signal.sigtimedwait(FORWARDED, 0)))
            return 0
        sys.exit(guard(run))
        """
    )
    assert one.line() == "up"
    one.process.send_signal(signal.Signals[name])
    assert one.line() == f"{name} True"
    assert one.line() == "None"
    assert one.end() == 0


def test_what_a_killed_supervisor_leaves_is_ended(guarded: type[Guarded]) -> None:
    """Children of all kinds; then the guardian ends with status 1."""
    one = guarded(
        """
        sleep = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
        def run(guardian):
            subprocess.Popen(sleep)
            subprocess.Popen(sleep, start_new_session=True)
            again = f"import subprocess; subprocess.Popen({sleep!r}, start_new_session=True)"
            subprocess.run([sys.executable, "-S", "-c", again])
            say(str(os.getpid()))
            signal.pause()
        sys.exit(guard(run))
        """
    )
    supervisor = int(one.line())
    assert len(tagged(one.tag)) == 5
    os.kill(supervisor, signal.SIGKILL)
    assert one.end() == 1
    assert tagged(one.tag) == {}


def test_children_can_be_found_without_the_kernels_list() -> None:
    """Kernels may lack /proc/PID/task/TID/children; a process's name may hold anything."""
    done = run_python(
        """
        import ctypes, os, signal
        from supervisor.processes import children
        made = []
        for name in (b"a) R 1 (", b"plain"):
            pid = os.fork()
            if pid == 0:
                ctypes.CDLL(None).prctl(15, name, 0, 0, 0)
                os.write(1, b".")
                signal.pause()
            made.append(pid)
        if os.fork() == 0:
            os._exit(0)
        print(set(made) < children._by_scanning(os.getpid()) == children.pids())
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        print(children.sweep(), children.pids())
        """
    )
    assert done.stdout.replace(".", "").splitlines() == ["True", "(3, set()) set()"], done.stderr


def test_children_of_whoever_became_the_guardian_are_spared(guarded: type[Guarded]) -> None:
    """A script may start something and then exec the command: that is none of ours."""
    one = guarded(
        """
        other = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
        status = guard(lambda guardian: 0)
        say(str(other.poll()))
        other.kill()
        other.wait()
        sys.exit(status)
        """
    )
    assert one.line() == "None"
    assert one.end() == 0


def test_signals_that_come_too_late_hurt_nobody(guarded: type[Guarded]) -> None:
    """What comes while the rest is swept was meant for the supervisor; afterwards signals are as they were before."""
    one = guarded(
        """
        from supervisor.processes import children
        sweep = children.sweep
        def late(spared):
            os.kill(os.getpid(), signal.SIGTERM)
            return sweep(spared)
        children.sweep = late
        status = guard(lambda guardian: 5)
        say(str(not signal.pthread_sigmask(signal.SIG_BLOCK, []) & set(WAITED)))
        sys.exit(status)
        """
    )
    assert one.line() == "True"
    assert one.end() == 5


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_standard_stream_that_is_closed_is_replaced(closed: int) -> None:
    """Else the next file that is opened would get its number, and what goes to the stream."""
    code = f"""
        def run(guardian):
            os.write({2 if closed == 1 else 1}, os.readlink("/proc/self/fd/{closed}").encode())
            return 0
        sys.exit(guard(run))
    """
    done = run_python(HEAD + textwrap.dedent(code), preexec_fn=lambda: os.close(closed))
    assert (done.stdout or done.stderr) == "/dev/null"


@needs_namespaces
def test_as_pid_1_unknown_children_are_reaped_and_nothing_else_happens(guarded: type[Guarded]) -> None:
    """An orphan from elsewhere in the container ends: no zombie stays, the supervisor does not notice."""
    one = guarded(
        """
        def run(guardian):
            say(f"guardian {guardian}")
            received = signal.sigwaitinfo(FORWARDED)
            say(signal.Signals(received.si_signo).name)
            return 4

        # Somebody else's process: PID 1 inherits its child when it ends.
        assert os.getpid() == 1
        sleep = "[sys.executable, '-S', '-c', 'import time; time.sleep(0.3)']"
        orphan = f"import subprocess, sys; subprocess.Popen({sleep})"
        subprocess.run([sys.executable, "-S", "-c", orphan])
        sys.exit(guard(run))
        """,
        UNSHARE,
    )
    assert one.line() == "guardian 1"
    first = next(pid for pid, command in tagged(one.tag).items() if "unshare" not in command and is_first(pid))

    def grandchildren() -> list[str]:
        pids = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids]

    eventually(lambda: len(grandchildren()) == 1, "the orphan to be reaped")
    assert grandchildren() == ["S"]
    os.kill(first, signal.SIGTERM)
    assert one.line() == "SIGTERM"
    assert one.end() == 4
