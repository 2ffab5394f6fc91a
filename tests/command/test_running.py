"""The commands beside a service: nothing there, somebody else's pid, watching, closed pipes, a stop by signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command.held import APP, ROOT, Held, wait_for_state

from ops import service
from shmclaims.segment import Segment

Run = Callable[..., Any]


@pytest.mark.parametrize("command", ["status", "claims", "release", "stop"])
def test_where_nothing_runs_the_status_is_6(tmp_path: Path, run: Run, command: str) -> None:
    """The places that were looked at are named."""
    config = tmp_path / "config.yaml"
    config.write_text(APP)
    done = run(command, str(config), *(["a-session"] if command == "release" else []))
    assert (done.status, done.out) == (6, "")
    assert f"found no supervisor in {tmp_path}/run" in done.err


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("app.py", "`gym-supervise run app.py` starts it, and with --name it is asked for by that"),
        ("no-such", "there is no file no-such, and `gym-supervise run --name no-such` has not been called"),
        ("no-such.yaml", "no-such.yaml: found nothing that can be read"),
    ],
)
def test_a_script_or_a_name_may_stand_for_a_config(run: Run, given: str, expected: str) -> None:
    """What was probably meant is said."""
    done = run("status", given)
    assert done.status == (2 if given.endswith(".yaml") else 6)
    assert expected in done.err


def test_a_pid_in_the_file_is_not_believed(held: Held, run: Run) -> None:
    """A state file that names a process which does not hold the lock is a dead supervisor's."""
    held.kill()
    state = json.loads((held.runtime_dir / "supervisor.json").read_text())
    (held.runtime_dir / "supervisor.json").write_text(json.dumps(state | {"pid": os.getpid()}))
    done = run("stop", str(held.config))
    assert done.status == 6
    assert "when it died" in done.err


def test_a_reader_leaves_the_lock_and_the_segment_alone(held: Held, run: Run) -> None:
    """Any number of readers later the supervisor still holds both."""
    for command in ("status", "claims"):
        run(command, str(held.config))
    assert service.lock_holder(held.runtime_dir / "lock") == held.process.pid
    segment = Segment.attach(held.segment)
    assert segment.supervisor_alive()
    segment.close()


def watching(held: Held, **options: Any) -> subprocess.Popen[bytes]:
    """`claims --watch --json` in a process of its own."""
    code = "import gym_supervise; gym_supervise.main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "claims", str(held.config), "--watch", "--json"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        **options,
    )


def test_watch_shows_the_list_again_until_it_is_interrupted(held: Held) -> None:
    """Each second one line of JSON; Ctrl-C is its orderly end."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import gym_supervise; gym_supervise.main()",
            "claims",
            held.config,
            "--watch",
            "--json",
        ],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    lines = [json.loads(process.stdout.readline()) for _ in range(2)]
    process.send_signal(signal.SIGINT)
    process.stdout.close()
    assert process.wait(20) == 0
    assert [len(line) for line in lines] == [4, 4]


def test_a_closed_pipe_is_no_error_of_ours(held: Held) -> None:
    """`claims | head -1` ends without a traceback."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import gym_supervise; gym_supervise.main()",
            "claims",
            held.config,
            "--watch",
            "--json",
        ],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(20) == 1


def test_output_that_nobody_reads_is_no_error_of_ours_either(held: Held) -> None:
    """The reader is gone before the first byte, which is only noticed at the end."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-c", "import gym_supervise; gym_supervise.main()", "status", str(held.config), "--json"],
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""},
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_stop_sends_sigterm_where_the_control_socket_does_not_answer(held: Held, run: Run) -> None:
    """The holder has no control socket: the signal reaches the process that holds the lock; its end is waited for."""
    done = run("stop", str(held.config))
    assert done.status == 0
    assert f"supervisor {held.process.pid} has stopped after" in done.out
    assert "sending SIGTERM to the supervisor instead" in done.err
    assert held.process.wait(1) == 0
    assert run("stop", str(held.config)).status == 6


def test_release_needs_a_supervisor_that_can_act(held: Held, run: Run) -> None:
    """Without a control socket, stopped by a signal, dead: each says so, at once, and has its status."""
    arguments = ("release", str(held.config), "alpha-00-0000-0001")
    done = run(*arguments)
    assert done.status == 1
    assert "control.sock cannot be used (No such file or directory)" in done.err
    held.process.send_signal(signal.SIGSTOP)
    wait_for_state(held.process.pid, "T")
    done = run(*arguments)
    assert done.status == 1
    assert f"supervisor {held.process.pid} cannot act: found that a signal has stopped it; `kill -CONT" in done.err
    held.process.send_signal(signal.SIGCONT)
    held.kill()
    done = run(*arguments)
    assert done.status == 6
    assert "when it died" in done.err
