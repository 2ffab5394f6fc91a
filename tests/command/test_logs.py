"""Log lines: their forms, none twice, and those of forked children, of signal handlers and of the last moment."""

from __future__ import annotations

import json
import subprocess

import pytest
from command.logging_process import SECONDS, read_until, script, stderr_of


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


def test_a_json_line_is_ascii_whatever_a_record_carries() -> None:
    """What could end a line for some reader, or is no JSON, is escaped or shown as text."""
    code = (
        "logs.configure(LogConfig(format='json'), role='x.0')\n"
        "log.info('\\u2028\\x9b\\u00e9')\n"
        "log.info('\\x7f')\n"
        "log.info('odd', extra={'a': b'\\xff', 'b': {1}, 'c': 1 << 70, 'd': 'h\\ud800'})\n"
        "log.info('next', extra={'e': ValueError('no'), 'f': {1: 2}})\n"
    )
    text = stderr_of(code)
    assert text.isascii()
    assert "\x7f" not in text
    first, second, third, fourth = (json.loads(line) for line in text.splitlines())
    assert (first["message"], second["message"]) == ("\u2028\x9b\u00e9", "\x7f")
    assert (third["c"], third["d"]) == (1 << 70, "h\ud800")
    assert (fourth["e"], fourth["f"]) == ("no", {"1": 2})


def test_levels_are_painted_on_a_terminal_alone() -> None:
    """Unless one is told to, or not to; never in JSON; NO_COLOR is heard."""
    code = (
        "import pty\n"
        "parent, child = pty.openpty()\n"
        "os.dup2(child, 2)\n"
        "form = 'console'\n"
        "for colors, form, no in ((None, form, 0), (None, form, 1), (False, form, 0), (True, 'json', 0)):\n"
        "  os.environ.pop('NO_COLOR', None)\n"
        "  if no: os.environ['NO_COLOR'] = '1'\n"
        "  logs.configure(LogConfig(format=form), role='supervisor', colors=colors)\n"
        "  log.info('hello')\n"
        "  print(b'\\x1b[32mINFO' in os.read(parent, 4096), flush=True)\n"
    )
    process = script(code, stdout=subprocess.PIPE)
    out, _ = process.communicate(timeout=SECONDS)
    assert out.split() == [b"True", b"False", b"False", b"False"]
    told = "logs.configure(LogConfig(), role='x.0', colors=True)\nlog.warning('hello')\n"
    assert " \x1b[33mWARNING \x1b[0m x.0[" in stderr_of(told)


def test_level_and_form_can_change() -> None:
    """From one line to the next; a level that somebody else has set stays theirs."""
    code = (
        "logs.configure(LogConfig(), role='supervisor')\n"
        "ours = logging.getLogger('gym_supervise.x')\n"
        "logging.getLogger('uvicorn').setLevel(logging.ERROR)\n"
        "for level, form in (('info', 'console'), ('debug', 'console'), ('error', 'json'), ('info', 'json')):\n"
        "  logs.change(LogConfig(level=level, format=form))\n"
        "  for name in ('test', 'gym_supervise.x', 'uvicorn.access'):\n"
        "    logging.getLogger(name).debug('%s debug', level)\n"
        "    logging.getLogger(name).warning('%s warning', level)\n"
    )
    said = []
    for line in stderr_of(code).splitlines():
        message = json.loads(line)["message"] if line.startswith("{") else line.rpartition(": ")[2]
        said.append((message, line.startswith("{")))
    assert said == [
        *[("info warning", False)] * 2,
        *[("debug debug", False), ("debug warning", False)] * 2,
        *[("info warning", True)] * 2,
    ]
