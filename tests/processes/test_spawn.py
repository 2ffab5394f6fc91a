"""Forking, without a supervisor around it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from processes.harness import Stubs, run_python

SPAWNER = """
    import json, os, select, signal, socket, sys, threading
    from pathlib import Path
    from shmclaims import Segment
    from supervisor.config import load
    from supervisor.processes.spawn import spawn
    from supervisor.processes.worker_spec import WorkerSpec
    config = load(sys.argv[1])
    segment = Segment.create({}, max_sessions=100)
    segment.unlink()

    def start(main):
        incarnation = segment.ring.register(0, now=0)
        make = lambda link: WorkerSpec(config, config.servers["app"], "app", 0, incarnation, segment, [], link, ".", 1)
        return spawn(make, main)
"""


@pytest.fixture
def spawner_config(tmp_path: Path) -> str:
    """A config for code that forks workers itself."""
    service = Stubs(tmp_path)
    service.write_config()
    return str(service.config)


def test_a_start_reaps_nobody(spawner_config: str) -> None:
    """Although multiprocess polls its processes at each start, a zombie stays until it is reaped, and leaks nothing."""
    done = run_python(
        SPAWNER
        + """
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        first = start(lambda spec: 7)
        select.select([first.pidfd], [], [])
        second = start(lambda spec: 8)
        assert first.exit_status() == 7
        assert Path(f"/proc/{first.pid}").exists()
        first.reap()
        select.select([second.pidfd], [], [])
        assert second.exit_status() == 8
        second.reap()
        assert not Path(f"/proc/{second.pid}").exists()
    print(len(os.listdir("/proc/self/fd")) - before)
    """,
        spawner_config,
    )
    assert done.stdout.strip() == "0", done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have a number given out again")
def test_a_signal_after_the_death_reaches_nobody(spawner_config: str) -> None:
    """Another process has the dead worker's number: it is not the one that is signalled."""
    done = run_python(
        SPAWNER
        + """
    first = start(lambda spec: 7)
    select.select([first.pidfd], [], [])
    first._process.reap()  # the number is free from here on
    said, saying = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, {10, 12})
    for _ in range(1000):  # other processes of the machine may come first
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(first.pid - 1))
        second = os.fork()
        if not second:
            while True:
                os.write(saying, b"%d " % signal.sigwait({10, 12}))
        if second == first.pid:
            break
        os.kill(second, 9)
        os.waitpid(second, 0)
    assert second == first.pid
    first.signal(10)  # the lower one would be taken first
    os.kill(second, 12)
    print(os.read(said, 100).decode())
    os.kill(second, 9)
    os.waitpid(second, 0)
    """,
        spawner_config,
    )
    assert done.stdout.strip() == "12", done.stderr


def test_a_process_with_two_threads_does_not_fork(spawner_config: str) -> None:
    """The other thread's locks would stay taken in the child for ever."""
    done = run_python(
        SPAWNER
        + """
    release = threading.Event()
    threading.Thread(target=release.wait).start()
    try:
        start(lambda spec: 0)
    except RuntimeError as error:
        print(error)
    release.set()
    """,
        spawner_config,
    )
    assert "found 2 threads, expected 1" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("code", "status"),
    [("return 5", 5), ("raise SystemExit(6)", 6), ("raise ValueError('seen')", 1), ("os._exit(9)", 9)],
)
def test_a_workers_exit_status(spawner_config: str, code: str, status: int) -> None:
    """What its main returns, or what it raises, which is logged."""
    done = run_python(
        SPAWNER
        + f"""
    import logging
    logging.basicConfig()
    def main(spec):
        {code}
    child = start(main)
    select.select([child.pidfd], [], [])
    print(json.dumps(child.exit_status()))
    child.reap()
    """,
        spawner_config,
    )
    assert json.loads(done.stdout) == status, done.stderr
    assert ("seen" in done.stderr) == ("seen" in code)
