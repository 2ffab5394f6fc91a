"""Runs a Python file as `python FILE ARGUMENTS` does: as the module `__main__`, with its own argv and sys.path.

`runpy` takes the module out of sys.modules at its end. Here it stays: the script's exit handlers and threads, and what
is pickled in them, still need it.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from importlib.machinery import SourceFileLoader
from types import ModuleType

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
"""This package: frames in it tell the script's author nothing."""


class ScriptSyntaxError(Exception):
    """The script cannot be compiled; the message is Python's own, with file and line."""


def run_as_main(script: str, argv: Sequence[str], *, folder: str) -> None:
    """Run a script to its end.

    Args:
        script: an absolute path.
        argv: what comes after it.
        folder: the working folder, which was put first on sys.path; the script's own takes its place there.

    Raises:
        ScriptSyntaxError: it is no Python.
        BaseException: what the script raises, SystemExit as well.

    """
    with io.open_code(script) as file:
        source = file.read()
    try:
        code = compile(source, script, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:  # ValueError: a NUL in it
        raise ScriptSyntaxError("".join(traceback.format_exception_only(error)).rstrip()) from None
    module = ModuleType("__main__")
    module.__dict__.update(
        __file__=script,
        __builtins__=__builtins__,
        __loader__=SourceFileLoader("__main__", script),
        __spec__=None,
        __package__=None,
        __cached__=None,
    )
    sys.modules["__main__"] = module
    sys.argv = [script, *argv]
    if folder in sys.path:
        sys.path.remove(folder)
    sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
    exec(code, module.__dict__)  # noqa: S102 - it is what the user asks for


def script_traceback(error: BaseException, *, chain: bool = True) -> str:
    """The error's traceback without the frames of this package, which stand above the script and below its call.

    With `chain` what it came from is told as well.
    """
    told = traceback.TracebackException.from_exception(error)
    for one in _with_causes(told, set()):
        one.stack = traceback.StackSummary.from_list(
            [frame for frame in one.stack if not frame.filename.startswith(HERE)]
        )
    return "".join(told.format(chain=chain))


def _with_causes(told: traceback.TracebackException | None, seen: set[int]) -> Iterable[traceback.TracebackException]:
    if told is None or id(told) in seen:
        return
    seen.add(id(told))
    yield told
    yield from _with_causes(told.__cause__, seen)
    yield from _with_causes(told.__context__, seen)
    for inner in told.exceptions or ():
        yield from _with_causes(inner, seen)
