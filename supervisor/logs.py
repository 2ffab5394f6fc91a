"""Log lines of supervisor and workers: one handler, one form, on stderr.

`configure` is called once in each process: at start in the guardian and the supervisor, after the fork in a worker.
uvicorn's loggers go through the same handler; the worker gives uvicorn `log_config=None`, so that no line comes twice.
Lines are `TIME LEVEL ROLE[PID] LOGGER: MESSAGE`, or a JSON object each. Times are in UTC.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import re
import sys
import time
from typing import Any

from supervisor.config.models import LogConfig
from supervisor.log_writer import MAX_LINE_BYTES, DirectWriter, LineWriter, QueuedWriter, Sink

SINGLE_THREADED_ROLES = ("guardian", "supervisor")
UVICORN_LOGGERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi")

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_CUT = b" ... (cut)\n"


def _time_of(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


class ConsoleFormatter(logging.Formatter):
    """For people. A message cannot pass for another line: what follows a line break is indented."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self.role = role

    def format(self, record: logging.LogRecord) -> str:
        """One entry, several lines when the message or a traceback has them."""
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        if record.stack_info:
            text += "\n" + self.formatStack(record.stack_info)
        text = _CONTROL.sub(lambda found: repr(found.group())[1:-1], text).replace("\n", "\n    ")
        place = f"{self.role}[{os.getpid()}]"
        return f"{_time_of(record)} {record.levelname:<8} {place} {record.name}: {text}"


class JsonFormatter(logging.Formatter):
    """For machines: one object a line; what a record carries in `extra` is a key of its own."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self.role = role

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON."""
        entry: dict[str, Any] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "role": self.role,
            "pid": os.getpid(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            entry["stack"] = self.formatStack(record.stack_info)
        entry |= {key: value for key, value in vars(record).items() if key not in _STANDARD and key not in entry}
        return json.dumps(entry, default=str)


class LineHandler(logging.Handler):
    """Hands formatted lines to a writer that never waits. A record that cannot be formatted is named, not raised."""

    def __init__(self, writer: LineWriter) -> None:
        super().__init__()
        self.writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            text = self.format(record)
        except Exception as error:
            text = f"a log call in {record.pathname}:{record.lineno} has a message that cannot be formatted: {error!r}"
        line = text.encode("utf-8", "backslashreplace") + b"\n"
        if len(line) > MAX_LINE_BYTES:
            line = line[: MAX_LINE_BYTES - len(_CUT)].decode("utf-8", "ignore").encode() + _CUT
        self.writer.write(line)


class _Installed:
    """The process's handler, and the descriptor that it writes to."""

    handler: LineHandler | None = None
    descriptor = 2


def configure(log: LogConfig, *, role: str) -> None:
    """Send this process's log records to stderr.

    Args:
        log: level and format.
        role: `guardian`, `supervisor`, or a worker's name such as `counter.0`; lines show it. Workers write from a
            thread; the other two from the calling one, without waiting.

    """
    shut_down(seconds=0.0)
    try:
        _Installed.descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # closed, or replaced by something without a descriptor
        _Installed.descriptor = 2
    sink = Sink(_Installed.descriptor)
    handler = LineHandler(DirectWriter(sink) if role in SINGLE_THREADED_ROLES else QueuedWriter(sink))
    handler.setFormatter(JsonFormatter(role) if log.format == "json" else ConsoleFormatter(role))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(log.level.upper())
    for name in UVICORN_LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
    _Installed.handler = handler
    atexit.register(shut_down)


def shut_down(seconds: float = 1.0) -> None:
    """Write what is queued, for at most so long, and take the handler away. A worker's last act."""
    handler, _Installed.handler = _Installed.handler, None
    atexit.unregister(shut_down)
    if handler is not None:
        logging.getLogger().removeHandler(handler)
        handler.writer.close(seconds)


def dropped() -> int:
    """Lines of this process that did not go out."""
    return _Installed.handler.writer.dropped if _Installed.handler else 0


def _after_fork_in_child() -> None:
    """A worker's forked child has the queue but not the thread; a worker has its supervisor's half-written line.

    Until `configure` is called, if ever, lines go to stderr as it is: the child closes descriptors raw, and one that is
    opened here could be closed twice.
    """
    if _Installed.handler is not None:
        _Installed.handler.writer.discard()
        _Installed.handler.writer = DirectWriter(Sink(_Installed.descriptor, reopen=False))


os.register_at_fork(after_in_child=_after_fork_in_child)
