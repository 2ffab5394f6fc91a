"""Strikes at the n-th bytecode that runs inside shmclaims: a SIGKILL there, or an exception.

Python 3.11 traces opcodes with `sys.settrace`. From 3.12 on `f_trace_opcodes` set in a global trace function does not
take effect for the running frame, and a test built on it passes on one point; `sys.monitoring` is used there, and every
test asserts a minimum number of points.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any, Self

from model import mutants

import shmclaims

STRUCK = (
    os.path.dirname(shmclaims.__file__),
    mutants.__file__,
)  # code in these files; what a mutant replaces is as well
TOOL = 4  # sys.monitoring leaves 3 and 4 to whoever comes


def die() -> None:
    """SIGKILL to this very process: nothing of it runs after this bytecode."""
    os.kill(os.getpid(), signal.SIGKILL)


class Strike:
    """While it is entered, counts bytecodes inside shmclaims and calls `blow` before the `at`-th."""

    def __init__(self, at: int, blow: Callable[[], None]) -> None:
        self.at = at
        self.blow = blow
        self.seen = 0

    def __enter__(self) -> Self:
        if sys.version_info >= (3, 12):
            monitoring = sys.monitoring
            monitoring.use_tool_id(TOOL, "strike")
            monitoring.register_callback(TOOL, monitoring.events.INSTRUCTION, self._instruction)
            for code in package_code():
                monitoring.set_local_events(TOOL, code, monitoring.events.INSTRUCTION)
        else:
            sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        if sys.version_info >= (3, 12):
            monitoring = sys.monitoring
            for code in package_code():
                monitoring.set_local_events(TOOL, code, 0)
            monitoring.register_callback(TOOL, monitoring.events.INSTRUCTION, None)
            monitoring.free_tool_id(TOOL)
        else:
            sys.settrace(None)

    def _count(self) -> None:
        self.seen += 1
        if self.seen == self.at:
            self.blow()

    def _instruction(self, _code: CodeType, _offset: int) -> None:
        self._count()

    def _trace(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(STRUCK):
            return None
        frame.f_trace_opcodes = True
        return self._trace_inside

    def _trace_inside(self, _frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "opcode":
            self._count()
        return self._trace_inside


def package_code() -> Iterator[CodeType]:
    """The code of every function of shmclaims."""
    for name, module in list(sys.modules.items()):
        if name == "shmclaims" or name.startswith("shmclaims."):
            for value in vars(module).values():
                holders = vars(value).values() if isinstance(value, type) else (value,)
                for holder in holders:
                    function = getattr(holder, "__func__", getattr(holder, "fget", holder))
                    if isinstance(function, FunctionType) and function.__code__.co_filename.startswith(STRUCK):
                        yield from _nested(function.__code__)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
