"""Log lines and their reader: gone, blocked, or slow; nobody waits for it, and what is missing is counted."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import subprocess

import pytest
from command.logging_process import SECONDS, read_until, read_while, script

from supervisor.logs.writer import DirectWriter, QueuedWriter, Sink


@pytest.mark.parametrize("role", ["supervisor", "x.0"])
def test_a_reader_that_is_gone_is_never_fatal(role: str) -> None:
    """EPIPE costs the lines, nothing else, and they are counted."""
    code = (
        "import time\n"
        f"logs.configure(LogConfig(), role={role!r})\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "for n in range(100): log.info('line')\n"
        "deadline = time.monotonic() + 20\n"
        "while logs.dropped() < 100 and time.monotonic() < deadline: time.sleep(0.01)\n"
        "print(logs.dropped())\n"
    )
    process = script(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"ready\n"
    process.stderr.close()
    process.stdin.write(b"go\n")
    process.stdin.close()
    assert process.stdout.read() == b"100\n"
    process.stdout.close()
    assert process.wait(SECONDS) == 0


@pytest.mark.parametrize("role", ["supervisor", "x.0"])
def test_a_blocked_reader_freezes_nobody(role: str, full_pipe: tuple[int, int]) -> None:
    """With a full pipe 10,000 lines return at once, and the process ends although nobody has read."""
    code = (
        f"logs.configure(LogConfig(), role={role!r})\n"
        "for n in range(10000): log.info('line %d', n)\n"
        "print(logs.dropped() > 0, flush=True)\n"
    )
    process = script(code, stdout=subprocess.PIPE, stderr=full_pipe[1])
    out, _ = process.communicate(timeout=SECONDS)
    assert out == b"True\n"
    assert process.returncode == 0


@pytest.mark.parametrize("kind", ["direct", "queued"])
def test_a_reader_that_goes_on_learns_how_many_lines_are_missing(kind: str, full_pipe: tuple[int, int]) -> None:
    """After the first line that goes out again comes the number of those that did not."""
    reader, writer = full_pipe
    sink = Sink(writer)
    log: DirectWriter | QueuedWriter = DirectWriter(sink) if kind == "direct" else QueuedWriter(sink, lines=5)
    for number in range(30):
        log.write(b"line %d\n" % number)
    dropped = log.dropped
    # Five wait in the queue; its thread may have taken one out at any moment, which made room for one more.
    assert dropped in ((30,) if kind == "direct" else (24, 25))
    size = fcntl.fcntl(reader, fcntl.F_GETPIPE_SZ)
    data = read_while(reader, lambda data: len(data) < size or data.count(b"line ") < 30 - dropped)
    log.write(b"after\n")
    data += read_until(reader, b"after\n")
    notices = re.findall(rb"\((\d+) log lines were dropped here: their reader was too slow\)\n", data)
    assert sum(map(int, notices)) == dropped
    assert data.count(b"line ") == 30 - dropped
    assert data.split(b"\n")[-2] == b"after"
    log.close()


def test_lines_keep_their_order_behind_a_slow_reader(full_pipe: tuple[int, int]) -> None:
    """Lines come one after the other, whether they went out at once or had to wait."""
    reader, writer = full_pipe
    log = QueuedWriter(Sink(writer), lines=100_000)
    data = b""
    for number in range(20_000):
        log.write(b"line %d\n" % number)
        if number % 1000 == 0:
            data += os.read(reader, 4096)
    data += read_until(reader, b"line 19999\n")
    assert data.lstrip(b".") == b"".join(b"line %d\n" % number for number in range(20_000))
    assert log.dropped == 0
    log.close()


def test_the_flags_of_the_inherited_stderr_are_left_alone(full_pipe: tuple[int, int]) -> None:
    """O_NONBLOCK belongs to the open file, which the shell and every child share."""
    _, writer = full_pipe
    before = fcntl.fcntl(writer, fcntl.F_GETFL)
    sink = Sink(writer)
    with pytest.raises(BlockingIOError):
        sink.write(b"x")
    assert fcntl.fcntl(writer, fcntl.F_GETFL) == before
    sink.close()


def test_a_socket_whose_reader_is_slow_does_not_block() -> None:
    """Journald's stderr is a stream socket."""
    ours, theirs = socket.socketpair()
    sink = Sink(ours.fileno())
    with pytest.raises(BlockingIOError):
        while True:
            sink.write(b"x" * 65536)
    assert ours.getblocking()
    theirs.close()
    with pytest.raises(OSError):
        while True:
            sink.write(b"x")
    sink.close()
    ours.close()


def test_a_line_that_went_out_in_part_is_ended_before_the_next(full_pipe: tuple[int, int]) -> None:
    """No line is torn by another one of the same process."""
    reader, writer = full_pipe
    log = DirectWriter(Sink(writer))
    os.read(reader, 4096)
    long = b"a" * 6000 + b"\n"
    log.write(long)
    log.write(b"lost\n")
    data = b""
    while len(data.lstrip(b".")) < 4096:
        data += os.read(reader, 65536)
    log.write(b"next\n")
    data += read_until(reader, b"next\n")
    lines = data.lstrip(b".").split(b"\n")
    assert lines[0] == b"a" * 6000
    assert lines[-2] == b"next"
    log.close()
