"""`top` in a real terminal: keys, signals, Ctrl-Z, and the terminal as it was afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command.held import APP, ROOT, Held, wait_for_state

from supervisor.runtime_dir import RuntimeDir

Run = Callable[..., Any]
SECONDS = 20.0
TOP = [sys.executable, "-c", "import gym_supervise; gym_supervise.main()", "top"]
ENTERS, LEAVES, SHOWS_CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


class Screen:
    """A terminal of 100 x 24 with a process in it, and everything that was written there."""

    def __init__(self, command: list[str]) -> None:
        self.outer, self.inner = os.openpty()
        fcntl.ioctl(self.inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        self.before = termios.tcgetattr(self.inner)
        self.text = ""
        self.process = subprocess.Popen(
            command,
            stdin=self.inner,
            stdout=self.inner,
            stderr=self.inner,
            # A size in the environment would come before the terminal's own.
            env={name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
            | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def read(self, condition: Callable[[str], Any]) -> str:
        """Read until what is there is as wanted."""
        deadline = time.monotonic() + SECONDS
        while not condition(self.text):
            assert time.monotonic() < deadline, self.text[-2000:]
            if select.select([self.outer], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):
                    self.text += os.read(self.outer, 65536).decode(errors="replace")
        return self.text

    def shows(self, words: str, *, times: int = 1) -> str:
        """Read until some words have been drawn so often; colours and line breaks are left out."""
        return self.read(
            lambda text: " ".join(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).split()).count(words) >= times
        )

    def press(self, keys: bytes) -> None:
        os.write(self.outer, keys)

    def ends(self) -> int:
        """The exit status, once it has ended; the terminal is as it was."""
        self.read(lambda _: self.process.poll() is not None)
        self.read(lambda text: text.count(LEAVES) == text.count(ENTERS) > 0)
        assert self.text.rindex(SHOWS_CURSOR) > self.text.rindex(ENTERS)
        assert termios.tcgetattr(self.inner) == self.before
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for descriptor in (self.outer, self.inner):
            with contextlib.suppress(OSError):
                os.close(descriptor)


@pytest.fixture
def screen(held: Held) -> Iterator[Callable[..., Screen]]:
    """Starts a command in a terminal: `top` of the held service, unless it is another."""
    made: list[Screen] = []

    def make(command: list[str] | None = None) -> Screen:
        made.append(Screen(command or [*TOP, str(held.config), "--interval", "0.1"]))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("key", [b"q", b"\x03", b"xyzQ"])
def test_a_key_ends_it_and_the_terminal_is_as_it_was(screen: Callable[..., Screen], key: bytes) -> None:
    """Keys are heard one by one and not echoed; other keys change nothing."""
    one = screen()
    one.shows("counter on 127.0.0.1:4321", times=2)
    line_editing = termios.tcgetattr(one.inner)[3] & (termios.ICANON | termios.ECHO)
    assert line_editing == 0
    one.press(b"z")
    drawn = one.text.count("requests/s")
    one.read(lambda text: text.count("requests/s") > drawn + 1)
    one.press(key)
    assert one.ends() == 0


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_ends_it_likewise(screen: Callable[..., Screen], name: str) -> None:
    """Sent by whomever."""
    one = screen()
    one.shows("counter on", times=2)
    one.process.send_signal(signal.Signals[name])
    assert one.ends() == 0


def test_a_terminal_that_is_closed_ends_it(screen: Callable[..., Screen]) -> None:
    """Its window was closed, its ssh connection broke off: no process stays."""
    one = screen()
    one.shows("counter on", times=2)
    os.close(one.inner)
    os.close(one.outer)
    assert one.process.wait(SECONDS) in (0, 1)


@pytest.mark.skipif(shutil.which("bash") is None, reason="job control needs a shell that has it: no bash here")
def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(screen: Callable[..., Screen], held: Held) -> None:
    """Stopped, the shell has its terminal as it was, on its own screen; `fg` draws anew."""
    command = f"{sys.executable} -c 'import gym_supervise; gym_supervise.main()' top {held.config} --interval 0.1"
    script = f"set -m; {command}; echo stopped: $?; stty -a; fg; echo ended: $?"
    one = screen(["bash", "--norc", "-c", script])
    one.shows("counter on", times=2)
    one.press(b"\x1a")
    one.shows("stopped: 148")
    before, _, after = one.read(lambda text: text.count(ENTERS) == 2).partition("stopped: 148")
    assert before.rindex(LEAVES) > before.rindex(ENTERS)
    assert re.search(r"\sicanon\b", after)
    assert re.search(r"\secho\b", after)
    drawn = one.text.count("requests/s")
    one.read(lambda text: text.count("requests/s") > drawn + 1)
    one.press(b"q")
    one.shows("ended: 0")
    assert one.ends() == 0


def test_another_size_is_taken_at_once(screen: Callable[..., Screen], held: Held) -> None:
    """A narrow terminal loses columns; nothing waits for the next look, which is far away."""
    one = screen([*TOP, str(held.config), "--interval", "600"])
    one.shows("memory", times=2)
    fcntl.ioctl(one.inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
    one.process.send_signal(signal.SIGWINCH)
    mark = len(one.text)
    one.read(lambda text: "req/s" in text[mark:])
    assert "memory" not in one.text[mark:]
    one.press(b"q")
    assert one.ends() == 0


def test_it_watches_a_supervisor_stop_die_and_be_gone(screen: Callable[..., Screen], held: Held) -> None:
    """Each is said; nothing is asked of it; and it goes on watching."""
    one = screen()
    one.shows("counter on", times=2)
    held.process.send_signal(signal.SIGSTOP)
    wait_for_state(held.process.pid, "T")
    one.shows(f"supervisor {held.process.pid} is stopped by a signal")
    held.kill()
    one.shows(f"supervisor {held.process.pid} is dead and did not clean up")
    (held.runtime_dir / "supervisor.json").unlink()
    one.shows("nothing of config runs")
    one.press(b"q")
    assert one.ends() == 0


def test_once_prints_a_frame_with_rates(held: Held, run: Run) -> None:
    """For scripts: no terminal, nothing cut, status 0."""
    done = run("top", str(held.config), "--once", "--interval", "0.1")
    assert (done.status, done.err) == (0, "")
    assert "counter on 127.0.0.1:4321:" in done.out
    assert "0 requests/s" in done.out
    assert " 3 live, 1 gone, 4.0% of 100" in done.out
    assert re.search(r"2 +- +backoff +0 +0 +0 +0 +0 +0 +- +- +4 +0", done.out)
    assert "\x1b" not in done.out


def test_without_a_terminal_it_says_what_to_do(held: Held, run: Run) -> None:
    """A usage error, as of a wrong option."""
    done = run("top", str(held.config))
    assert done.status == 2
    assert "--once prints one frame" in done.err


def test_where_nothing_runs_it_ends_at_once(tmp_path: Path, run: Run) -> None:
    """Status 6, and 6 as well while there are no segments yet."""
    config = tmp_path / "config.yaml"
    config.write_text(APP)
    assert run("top", str(config), "--once").status == 6
    runtime = RuntimeDir(str(tmp_path / "run"))
    try:
        done = run("top", str(config), "--once")
    finally:
        runtime.close()
    assert done.status == 6
    assert "which is starting" in done.err


def test_a_dead_supervisors_claims_are_all_gone(held: Held, run: Run) -> None:
    """No worker outlives it, whatever the rows say that it left."""
    held.kill()
    done = run("top", str(held.config), "--once", "--interval", "0.1")
    assert done.status == 0
    assert " 0 live, 4 gone" in done.out
    assert json.dumps(done.out).count(" dead ") >= 2
