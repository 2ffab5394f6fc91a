"""A terminal for a live view: keys as they are pressed, signals as events, and everything as it was at the end.

Signal handlers do nothing; their numbers arrive on a descriptor, beside the keys. Ctrl-Z works: the terminal is given
back before the process stops, and taken again when it goes on.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal, Self

Event = Literal["end", "again"]

ENDS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
HEARD = ENDS | {signal.SIGTSTP, signal.SIGWINCH}
KEYS_THAT_END = frozenset("qQ\x03\x04")


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """The wake-up descriptor has the number."""


class Terminal:
    """Stdin without line editing and echo, while it is entered.

    Args:
        pause: called before the process stops for Ctrl-Z, with the terminal still as it is here.
        resume: called when it goes on.

    """

    def __init__(self, *, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._pause = pause
        self._resume = resume
        self._stdin = sys.stdin.fileno()
        self._before: list[Any] = []
        self._handlers: dict[signal.Signals, Any] = {}
        self._reader = self._writer = -1

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._stdin)
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in HEARD:
            self._handlers[number] = signal.signal(number, _nothing)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._reader)
        os.close(self._writer)

    def wait(self, seconds: float) -> Event:
        """Wait so long, or until there is something to do: "end" when it is over, "again" when it is time to draw."""
        ready, _, _ = select.select([self._stdin, self._reader], [], [], max(seconds, 0.0))
        if self._reader in ready and self._hear():
            return "end"
        return "end" if self._stdin in ready and self._key_ends() else "again"

    def _hear(self) -> bool:
        """Whether a signal says that it is over."""
        numbers = os.read(self._reader, 1024)
        if any(number in ENDS for number in numbers):
            return True
        if signal.SIGTSTP in numbers:
            self._stop()
        return False

    def _key_ends(self) -> bool:
        try:
            keys = os.read(self._stdin, 1024).decode(errors="replace")
        except OSError:  # it has been hung up
            return True
        return not keys or any(key in KEYS_THAT_END for key in keys)

    def _stop(self) -> None:
        self._pause()
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)  # this process stops here
        signal.signal(signal.SIGTSTP, _nothing)
        self._take()
        self._resume()

    def _take(self) -> None:
        tty.setcbreak(self._stdin, termios.TCSANOW)

    def _give_back(self) -> None:
        with contextlib.suppress(termios.error):  # it has been hung up
            termios.tcsetattr(self._stdin, termios.TCSANOW, self._before)
