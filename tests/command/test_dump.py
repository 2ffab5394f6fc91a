"""`status` and `claims` on a real segment: of a running, a stopped and a dead supervisor."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ops import service
from shmclaims.segment import Segment, SegmentError
from supervisor import cli
from supervisor.runtime_dir import RuntimeDir

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
APP = "runtime_dir: run\nservers:\n  counter:\n    app: m:app\n"
Run = Callable[..., Any]
TIME = "2027-01-15T08:00:00Z"


class Held:
    """The holder process, and the config that names its folder."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "config.yaml"
        self.config.write_text(APP)
        self.runtime_dir = folder / "run"
        self.kept: int | None = None
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "holder.py"), str(self.runtime_dir)],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == str(self.process.pid).encode()
        found = service.read(self.runtime_dir)
        assert found is not None
        self.segment = found.segments["counter"]

    def kill(self) -> None:
        """SIGKILL, and wait for its end. The segment is kept from services that start meanwhile and would remove it."""
        self.kept = os.open(f"/dev/shm{self.segment}", os.O_RDWR)
        self.process.kill()
        self.process.wait()
        fcntl.lockf(self.kept, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def clean_up(self) -> None:
        """Nothing of it stays."""
        if self.kept is not None:
            os.close(self.kept)
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        try:
            segment = Segment.attach(self.segment)
        except SegmentError:
            return
        segment.unlink()
        segment.close()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    """A supervisor's belongings, with 3 workers and 4 claims."""
    held = Held(tmp_path)
    yield held
    held.clean_up()
    assert not [name for name in os.listdir("/dev/shm") if held.segment[1:] in name]


def wait_for_state(pid: int, state: str) -> None:
    """Wait until the kernel says that a process is in a state."""
    import time

    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != state:
        assert time.monotonic() < deadline


def test_status_json_has_exactly_the_documented_fields(held: Held, run: Run) -> None:
    """Every field of the design, from a running service."""
    done = run("status", str(held.config), "--json")
    assert (done.status, done.err) == (0, "")
    status = json.loads(done.out)
    ages = [worker.pop("heartbeat_age_seconds") for worker in status["servers"]["counter"]["workers"]]
    assert ages[0] >= 0
    assert ages[1] >= 0
    assert ages[2] is None
    counters = {"sessions": 0, "in_flight": 0, "requests": 0, "relayed_out": 0, "relayed_in": 0, "restarts": 0}
    memory = {"rss_bytes": 50 * 2**20}
    assert status == {
        "supervisor": {"pid": held.process.pid, "started_at": TIME, "version": "1.2.3"},
        "servers": {
            "counter": {
                "bind": "127.0.0.1:4321",
                "workers": [
                    {"index": 0, "pid": 1000, "incarnation": 1, "state": "ready"}
                    | counters
                    | {"sessions": 2, "requests": 10}
                    | memory,
                    {"index": 1, "pid": 1001, "incarnation": 2, "state": "ready"}
                    | counters
                    | {"sessions": 1, "requests": 20, "relayed_out": 1}
                    | memory,
                    {"index": 2, "pid": None, "incarnation": 3, "state": "backoff"}
                    | counters
                    | {"restarts": 4, "rss_bytes": None},
                ],
                "claims": {"live": 3, "gone": 1, "capacity": 100},
            }
        },
    }


def test_claims_json_has_exactly_the_documented_fields(held: Held, run: Run) -> None:
    """A list of claims: a readable prefix and a digest, never the whole id."""
    done = run("claims", str(held.config), "--json")
    assert (done.status, done.err) == (0, "")
    claims = {(claim["session"], claim["worker"]): claim for claim in json.loads(done.out)}
    claim = claims["gone-000", 2]
    assert re.fullmatch(r"[0-9a-f]{32}", claim.pop("digest"))
    assert claim == {
        "server": "counter",
        "session": "gone-000",
        "state": "gone",
        "worker": 2,
        "incarnation": 3,
        "opened_at": TIME,
        "last_used_at": TIME,
    }
    assert len(json.loads(done.out)) == 4
    assert not any(whole in done.out for whole in ("alpha-00-0000-0001", "beta-000-0000-0001", "gone-000-0000-0001"))


CHOICES: list[tuple[list[str], set[str]]] = [
    (["--state", "gone"], {"gone-000"}),
    (["--state", "live"], {"alpha-00", "beta-000"}),
    (["--worker", "1"], {"beta-000"}),
    (["--worker", "9"], set()),
    (["--server", "counter", "--worker", "0"], {"alpha-00"}),
    (["beta-000-0000-0001"], {"beta-000"}),
    (["gone-000-0000-0001", "--state", "gone"], {"gone-000"}),
    (["gone-000-0000-0001", "--state", "live"], set()),
    (["beta-000"], set()),
    (["nobody"], set()),
]


def test_claims_can_be_chosen(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    """By state, worker, server, and by the whole session id alone."""
    for arguments, expected in CHOICES:
        assert cli.run(["claims", str(held.config), "--json", *arguments]) == 0
        assert {claim["session"] for claim in json.loads(capsys.readouterr().out)} == expected, arguments


def test_an_unknown_server_is_a_usage_error(held: Held, run: Run) -> None:
    """The names that there are are said."""
    done = run("claims", str(held.config), "--server", "nope")
    assert done.status == 2
    assert "--server: found 'nope', expected one of counter" in done.err


def test_people_get_tables(held: Held, run: Run) -> None:
    """Without --json both commands print a table that is not cut where no terminal is."""
    status = run("status", str(held.config))
    assert status.status == 0
    assert "counter on 127.0.0.1:4321: 3 live and 1 gone claims of 100" in status.out
    assert re.search(r"0 +1000 +1 +ready +2 +0 +10 ", status.out)
    assert re.search(r"2 +- +3 +backoff .* 4 +- +-", status.out)
    claims = run("claims", str(held.config))
    assert re.search(r"counter +beta-000\.\.\. +live +1 +2 +2027-01-15T08:00:00Z .*[0-9a-f]{32}", claims.out)
    assert "4 claims" in claims.out
    assert "no claims" in run("claims", str(held.config), "nobody").out


def test_a_stopped_supervisor_is_said_on_stderr_and_read_all_the_same(held: Held, run: Run) -> None:
    """SIGSTOP of the supervisor hides nothing."""
    held.process.send_signal(signal.SIGSTOP)
    wait_for_state(held.process.pid, "T")
    for command in ("status", "claims"):
        done = run(command, str(held.config), "--json")
        assert done.status == 0
        assert f"supervisor {held.process.pid} is stopped by a signal" in done.err
        assert json.loads(done.out)


def test_a_dead_supervisors_segment_is_read_and_its_claims_are_gone(held: Held, run: Run) -> None:
    """After SIGKILL the operator sees what was there; no worker outlives its supervisor, so no claim is live."""
    held.kill()
    status = run("status", str(held.config), "--json")
    assert status.status == 0
    assert f"supervisor {held.process.pid} is dead" in status.err
    assert json.loads(status.out)["servers"]["counter"]["claims"]["capacity"] == 100
    claims = run("claims", str(held.config), "--json")
    assert {claim["state"] for claim in json.loads(claims.out)} == {"gone"}
    assert len(json.loads(claims.out)) == 4
    assert len(json.loads(run("claims", str(held.config), "--json", "alpha-00-0000-0001").out)) == 1


def test_nothing_is_left_when_the_segment_is_gone_too(held: Held, run: Run) -> None:
    """A dead supervisor whose shared memory was removed: nothing runs there."""
    held.kill()
    segment = Segment.attach(held.segment)
    segment.unlink()
    segment.close()
    done = run("status", str(held.config))
    assert done.status == 6
    assert "the shared memory of server counter cannot be read" in done.err


def test_a_supervisor_that_is_still_starting_is_said_to_be(tmp_path: Path, run: Run) -> None:
    """The lock is held, the segments are not there yet."""
    config = tmp_path / "config.yaml"
    config.write_text(APP)
    runtime = RuntimeDir(str(tmp_path / "run"))
    try:
        done = run("status", str(config))
    finally:
        runtime.close()
    assert done.status == 6
    assert f"supervisor {os.getpid()}, which is starting" in done.err


@pytest.mark.parametrize("command", ["status", "claims", "stop"])
def test_where_nothing_runs_the_status_is_6(tmp_path: Path, run: Run, command: str) -> None:
    """The places that were looked at are named."""
    config = tmp_path / "config.yaml"
    config.write_text(APP)
    done = run(command, str(config))
    assert (done.status, done.out) == (6, "")
    assert f"found no supervisor in {tmp_path}/run" in done.err


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
