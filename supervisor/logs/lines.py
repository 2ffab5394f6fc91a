"""Log lines of supervisor and workers: one handler, one form, on stderr, and none twice.

`configure` is called once in each process: at start in the guardian and the supervisor, after the fork in a worker.
Our own loggers write through it whatever the app does to the root logger. Everything else takes it where nobody else
has taken the record, as under a plain uvicorn: a logger to which the app, or uvicorn's `log_config`, has given a
handler writes through that alone. The worker gives uvicorn `log_config=None` unless the config has one.

Lines are `TIME LEVEL ROLE[PID] LOGGER: MESSAGE`, or a JSON object each (log_formats). Times are in UTC.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from typing import Any

from supervisor.config.models import LogConfig
from supervisor.logs.formats import ConsoleFormatter, JsonFormatter
from supervisor.logs.writer import MAX_LINE_BYTES, DirectWriter, LineWriter, QueuedWriter, Sink

SINGLE_THREADED_ROLES = ("guardian", "supervisor")
OURS = ("gym_supervise", "supervisor")
UVICORN_LOGGERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi")
LEVELLED = ("", *OURS, "uvicorn")
"""The loggers whose level is `log.level`; the others take theirs from these, unless somebody sets it."""

WEBSOCKET_LINE = '%s - "WebSocket %s" '
"""How uvicorn's own access lines of WebSockets begin; they go to its error log."""

_CUT = b" ... (cut)\n"


class LineHandler(logging.Handler):
    """Hands formatted lines to a writer that never waits. A record that cannot be formatted is named, not raised."""

    def __init__(self, writer: LineWriter) -> None:
        super().__init__()
        self.writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, unless it has gone through another handler."""
        if not record.name.startswith(OURS) and _is_taken(record, self):
            return
        try:
            text = self.format(record)
        except Exception as error:
            text = f"a log call in {record.pathname}:{record.lineno} has a message that cannot be formatted: {error!r}"
        line = text.encode("utf-8", "backslashreplace") + b"\n"
        if len(line) > MAX_LINE_BYTES:
            line = line[: MAX_LINE_BYTES - len(_CUT)].decode("utf-8", "ignore").encode() + _CUT
        self.writer.write(line)


def _is_taken(record: logging.LogRecord, ours: LineHandler) -> bool:
    logger: Any = logging.root.manager.loggerDict.get(record.name, logging.root)  # getLogger without its lock
    while logger is not None:
        for handler in logger.handlers:
            if handler is not ours and record.levelno >= handler.level and not isinstance(handler, logging.NullHandler):
                return True
        if not logger.propagate:
            return False
        logger = logger.parent
    return False


class _Installed:
    """The process's handler, the descriptor that it writes to, and the level that was set here for `levelled`."""

    handler: LineHandler | None = None
    descriptor = 2
    role = ""
    colors: bool | None = None
    level = logging.NOTSET
    levelled: tuple[str, ...] = LEVELLED


def configure(log: LogConfig, *, role: str, colors: bool | None = None) -> None:
    """Send this process's log records to stderr.

    Args:
        log: level and format.
        role: `guardian`, `supervisor`, or a worker's name such as `counter.0`; lines show it. Workers write from a
            thread; the other two from the calling one, without waiting.
        colors: whether levels are painted; None: on a terminal. Never in JSON.

    """
    shut_down(seconds=0.0)
    try:
        _Installed.descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # closed, or replaced by something without a descriptor
        _Installed.descriptor = 2
    sink = Sink(_Installed.descriptor)
    handler = LineHandler(DirectWriter(sink) if role in SINGLE_THREADED_ROLES else QueuedWriter(sink))
    _Installed.handler, _Installed.role, _Installed.colors = handler, role, colors
    for name in UVICORN_LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
    logging.getLogger().addHandler(handler)
    _Installed.level = logging.getLevelName(log.level.upper())
    _Installed.levelled = LEVELLED
    for name in LEVELLED:
        logging.getLogger(name).setLevel(_Installed.level)
    _set_format(log)
    settle()
    atexit.register(shut_down)


def settle() -> None:
    """Put our own lines back in place after an app, or uvicorn's `log_config`, has set up logging.

    `dictConfig` disables every logger that exists, unless told not to; an app means its own with that.
    """
    handler = _Installed.handler
    if handler is None:
        return
    for name in OURS:
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
    for name, found in logging.getLogger().manager.loggerDict.items():
        if isinstance(found, logging.Logger) and name.split(".")[0] in OURS:
            found.disabled = False
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(handler)


def change(log: LogConfig) -> None:
    """Take another level and format from now on, as after a reload. A level that somebody else has set stays."""
    before, _Installed.level = _Installed.level, logging.getLevelName(log.level.upper())
    _Installed.levelled = tuple(name for name in _Installed.levelled if logging.getLogger(name).level == before)
    for name in _Installed.levelled:
        logging.getLogger(name).setLevel(_Installed.level)
    _set_format(log)


def hush_uvicorn() -> None:
    """Drop uvicorn's own access lines, those of WebSockets in its error log too: the router's say more."""
    logging.getLogger("uvicorn.error").addFilter(_is_no_websocket_line)
    logging.getLogger("uvicorn.access").addFilter(_is_the_routers)


def _is_no_websocket_line(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(WEBSOCKET_LINE)


def _is_the_routers(record: logging.LogRecord) -> bool:
    return hasattr(record, "duration_ms")


def _set_format(log: LogConfig) -> None:
    handler, role, colors = _Installed.handler, _Installed.role, _Installed.colors
    if handler is None:
        return
    if colors is None:
        colors = "NO_COLOR" not in os.environ and _is_terminal(_Installed.descriptor)
    handler.setFormatter(JsonFormatter(role) if log.format == "json" else ConsoleFormatter(role, colors=colors))


def _is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor) and os.environ.get("TERM") != "dumb"
    except OSError:
        return False


def shut_down(seconds: float = 1.0) -> None:
    """Write what is queued, for at most so long, and take the handler away. A worker's last act."""
    handler, _Installed.handler = _Installed.handler, None
    atexit.unregister(shut_down)
    if handler is not None:
        for name in ("", *OURS):
            logging.getLogger(name).removeHandler(handler)
        for name in OURS:
            logging.getLogger(name).propagate = True
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
