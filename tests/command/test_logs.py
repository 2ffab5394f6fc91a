"""Log lines: their forms, none twice, and nobody who waits for a reader that does not read."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.log_writer import DirectWriter, QueuedWriter, Sink

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 20.0


def script(code: str, **options: object) -> subprocess.Popen[bytes]:
    """Run Python code that logs, in a process of its own."""
    preamble = (
        "import logging, os, sys\n"
        "from supervisor import logs\n"
        "from supervisor.config import LogConfig\n"
        "log = logging.getLogger('test')\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    arguments: Any = {"env": environment} | options
    return subprocess.Popen([sys.executable, "-c", preamble + code], **arguments)


def stderr_of(code: str) -> str:
    """What a script wrote to stderr; it must end well."""
    process = script(code, stderr=subprocess.PIPE)
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err.decode()
    return err.decode()


@pytest.fixture
def full_pipe() -> Iterator[tuple[int, int]]:
    """A pipe whose buffer is full and whose reader does not read: (read end, write end)."""
    reader, writer = os.pipe()
    flags = fcntl.fcntl(writer, fcntl.F_GETFL)
    fcntl.fcntl(writer, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    try:
        while True:
            os.write(writer, b"." * 4096)
    except BlockingIOError:
        pass
    fcntl.fcntl(writer, fcntl.F_SETFL, flags)
    yield reader, writer
    for descriptor in (reader, writer):
        with contextlib.suppress(OSError):
            os.close(descriptor)


def read_until(reader: int, end: bytes) -> bytes:
    """Read until the end of the data is `end`."""
    data = b""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    while not data.endswith(end):
        assert poll.poll(SECONDS * 1000), data[-200:]
        data += os.read(reader, 65536)
    return data


@pytest.mark.parametrize("role", ["supervisor", "counter.0"])
def test_a_console_line_has_time_level_role_and_logger(role: str) -> None:
    """One line for people, the same from supervisor and worker."""
    line = stderr_of(f"logs.configure(LogConfig(), role={role!r})\nlog.warning('hello %s', 'you')")
    time, level, place, name, text = line.split(maxsplit=4)
    assert len(time) == 24
    assert time.endswith("Z")
    assert (level, name, text) == ("WARNING", "test:", "hello you\n")
    assert place.startswith(f"{role}[")


@pytest.mark.parametrize("role", ["supervisor", "counter.0"])
def test_a_json_line_is_one_object_with_what_the_record_carries(role: str) -> None:
    """A traceback and extra facts are keys, and the line stays one line."""
    text = stderr_of(
        f"logs.configure(LogConfig(format='json'), role={role!r})\n"
        "try:\n  1 / 0\nexcept ZeroDivisionError:\n  log.exception('a\\nb', extra={'session': 'x', 'message_': {1}})\n"
    )
    entry = json.loads(text)
    assert text.count("\n") == 1
    assert (entry["level"], entry["role"], entry["logger"], entry["message"]) == ("error", role, "test", "a\nb")
    assert entry["session"] == "x"
    assert "ZeroDivisionError" in entry["traceback"]


def test_a_message_cannot_pass_for_another_line() -> None:
    """What a client sends may end up in a message: line breaks are indented, terminal codes shown."""
    code = "logs.configure(LogConfig(), role='supervisor')\nlog.info('a\\n2026-01-01 forged\\x1b[31m\\r')"
    lines = stderr_of(code).splitlines()
    assert lines[1] == "    2026-01-01 forged\\x1b[31m\\r"


def test_the_level_is_kept_also_by_uvicorns_loggers() -> None:
    """What is below the level is not written, by whomever."""
    code = (
        "logs.configure(LogConfig(level='warning'), role='x.0')\n"
        "log.info('no')\nlog.warning('yes')\n"
        "logging.getLogger('uvicorn.error').info('no')\nlogging.getLogger('uvicorn.error').warning('yes')\n"
    )
    text = stderr_of(code)
    assert "no" not in text
    assert text.count("yes") == 2


def test_uvicorns_lines_come_once_and_in_the_same_form() -> None:
    """A server configured with log_config=None logs through our handler only, also after uvicorn's own set-up."""
    code = (
        "import uvicorn\n"
        "uvicorn.Config('x:y')\n"  # installs uvicorn's own handlers
        "logs.configure(LogConfig(format='json'), role='x.0')\n"
        "uvicorn.Config('x:y', log_config=None)\n"
        "logging.getLogger('uvicorn.error').info('one')\n"
        "logging.getLogger('uvicorn.access').info('%s - \"%s %s HTTP/%s\" %d', 'c', 'GET', '/', '1.1', 200)\n"
    )
    entries = [json.loads(line) for line in stderr_of(code).splitlines()]
    assert [entry["message"] for entry in entries] == ["one", 'c - "GET / HTTP/1.1" 200']


def test_configuring_twice_writes_each_line_once() -> None:
    """A worker configures what it has inherited configured."""
    code = "logs.configure(LogConfig(), role='supervisor')\nlogs.configure(LogConfig(), role='x.0')\nlog.info('once')\n"
    assert stderr_of(code).count("once") == 1


def test_a_log_call_that_cannot_be_formatted_is_named_and_harmless() -> None:
    """A wrong number of arguments costs the message, not the request."""
    text = stderr_of("logs.configure(LogConfig(), role='x.0')\nlog.info('%d', 'x')\nlog.info('after')")
    assert "has a message that cannot be formatted: TypeError" in text
    assert "after" in text


def test_a_long_line_is_cut_on_a_character() -> None:
    """A line fits into a pipe, and stays UTF-8."""
    text = stderr_of("logs.configure(LogConfig(), role='x.0')\nlog.info('\\u00e9' * 100000)\nlog.info('after')")
    first, second = text.splitlines()
    assert first.endswith("é ... (cut)")
    assert len(first.encode()) <= 32 * 1024
    assert second.endswith("after")


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
    last = 29 - dropped  # the thread may have taken one line out of the queue of five
    assert last in ((-1,) if kind == "direct" else (4, 5))
    fcntl.fcntl(reader, fcntl.F_SETFL, os.O_NONBLOCK)
    data = b""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    while poll.poll(0):
        data += os.read(reader, 65536)
    fcntl.fcntl(reader, fcntl.F_SETFL, 0)
    if kind == "queued" and not data.endswith(b"line %d\n" % last):
        data += read_until(reader, b"line %d\n" % last)
    log.write(b"after\n")
    data += read_until(reader, b"after\n")
    assert b"(%d log lines were dropped here: their reader was too slow)\n" % dropped in data
    assert data.lstrip(b".").split(b"\n")[-2] == b"after"
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


def test_a_forked_child_of_a_worker_logs_too() -> None:
    """Apps fork: the process has one thread, and what both sides log comes once."""
    code = (
        "logs.configure(LogConfig(), role='x.0')\n"
        "log.info('before')\n"
        "assert len(os.listdir('/proc/self/task')) == 1\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "  log.info('in between')\n"
        "  os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "log.info('after')\n"
    )
    assert [line.rpartition(": ")[2] for line in stderr_of(code).splitlines()] == ["before", "in between", "after"]


def test_a_child_forked_while_lines_wait_writes_none_of_them(full_pipe: tuple[int, int]) -> None:
    """The queue and the thread are the parent's; the child writes its own lines by itself."""
    reader, writer = full_pipe
    code = (
        "import time, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "logs.configure(LogConfig(), role='x.0')\n"
        "for n in range(50): log.info('line %d.', n)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "  sys.stdin.readline()\n"
        "  log.info('of the child')\n"
        "  logs.shut_down()\n"
        "  os._exit(0)\n"
        "print('forked', flush=True)\n"
        "os.waitpid(pid, 0)\n"
        "log.info('the end')\n"
    )
    process = script(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=writer)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"forked\n"
    data = read_until(reader, b"line 49.\n")
    process.stdin.write(b"go\n")
    process.stdin.close()
    data += read_until(reader, b"the end\n")
    process.stdout.close()
    assert process.wait(SECONDS) == 0
    lines = [line.rpartition(b": ")[2] for line in data.lstrip(b".").splitlines()]
    assert lines == [*(b"line %d." % number for number in range(50)), b"of the child", b"the end"]


def test_the_last_line_before_a_crash_is_out() -> None:
    """A worker that kills itself in the next statement has still said why."""
    code = "logs.configure(LogConfig(), role='x.0')\nlog.info('last words')\nos.kill(os.getpid(), 9)\n"
    process = script(code, stderr=subprocess.PIPE)
    _, err = process.communicate(timeout=SECONDS)
    assert err.endswith(b"last words\n")


def test_what_is_queued_at_the_end_is_written() -> None:
    """A worker's last lines, its reason to end among them, are not lost."""
    text = stderr_of("logs.configure(LogConfig(), role='x.0')\nfor n in range(3000): log.info('line %d.', n)")
    assert text.count("line ") == 3000


def test_a_signal_handler_may_log_while_a_line_is_written() -> None:
    """A handler that logs in the middle of a log call does not lock the process up."""
    code = (
        "import signal\n"
        "logs.configure(LogConfig(), role='x.0')\n"
        "signal.signal(signal.SIGALRM, lambda *_: log.info('alarm'))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\n"
        "for n in range(3000): log.info('line')\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
    )
    text = stderr_of(code)
    assert "alarm" in text
    assert text.count("line") == 3000


def test_the_supervisor_gets_no_second_thread() -> None:
    """It forks, and a fork of a threaded process is not safe."""
    code = "logs.configure(LogConfig(), role='supervisor')\nlog.info('x')\nprint(len(os.listdir('/proc/self/task')))\n"
    process = script(code, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    out, _ = process.communicate(timeout=SECONDS)
    assert out == b"1\n"
