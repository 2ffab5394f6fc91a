"""What a log line looks like: for people, or a JSON object for machines. Times are in UTC.

Access records (`routing.access`) carry more than their text: session, worker, owner, duration. Both forms show it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from typing import Any

import msgspec

_STANDARD = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"})
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_ACCESS_ARGUMENTS = ("client", "method", "path", "http_version", "status")
_ACCESS_FACTS = ("server", "worker", "owner", "session", "duration_ms", "refused", "cut")

_COLORS = {
    logging.DEBUG: "\x1b[36m",
    logging.INFO: "\x1b[32m",
    logging.WARNING: "\x1b[33m",
    logging.ERROR: "\x1b[31m",
    logging.CRITICAL: "\x1b[91m",
}
_PLAIN = "\x1b[0m"


class _Clock:
    """Wall seconds as text: a second's text is made once."""

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def text(self, record: logging.LogRecord) -> str:
        created = record.created
        second = int(created)
        if second != self._second:
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._second = second
        return f"{self._text}.{int((created - second) * 1000):03d}Z"


def _is_access(record: logging.LogRecord) -> bool:
    """A line of the router's own, which uvicorn's name alone does not say."""
    return record.name == "uvicorn.access" and "duration_ms" in record.__dict__


class ConsoleFormatter(logging.Formatter):
    """For people. A message cannot pass for another line: what follows a line break is indented.

    `colors` paints the level, as uvicorn does.
    """

    def __init__(self, role: str, *, colors: bool = False) -> None:
        super().__init__()
        self.role = role
        self._colors = colors
        self._clock = _Clock()

    def format(self, record: logging.LogRecord) -> str:
        """One entry, several lines when the message or a traceback has them."""
        text = record.getMessage()
        if _is_access(record):
            text += _facts(record.__dict__)
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        if record.stack_info:
            text += "\n" + self.formatStack(record.stack_info)
        if not text.isprintable():
            text = _CONTROL.sub(lambda found: repr(found.group())[1:-1], text).replace("\n", "\n    ")
        level = f"{record.levelname:<8}"
        if self._colors:
            level = f"{_COLORS.get(record.levelno, '')}{level}{_PLAIN}"
        return f"{self._clock.text(record)} {level} {self.role}[{record.process or os.getpid()}] {record.name}: {text}"


def _facts(known: dict[str, Any]) -> str:
    session, owner, refused = known["session"], known["owner"], known["refused"]
    text = (
        f" in {known['duration_ms']:.1f} ms, session={session or '-'} worker={known['worker']}"
        f" owner={'-' if owner is None else owner}"
    )
    if refused is not None:
        text += f" refused={refused}"
    return f"{text} cut" if known["cut"] else text


class JsonFormatter(logging.Formatter):
    """For machines: one object a line, ASCII alone; what a record carries in `extra` is a key of its own."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self.role = role
        self._clock = _Clock()
        self._encode = msgspec.json.Encoder(enc_hook=str).encode

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON."""
        entry: dict[str, Any] = {
            "time": self._clock.text(record),
            "level": record.levelname.lower(),
            "role": self.role,
            "pid": record.process or os.getpid(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        known = record.__dict__
        if _is_access(record) and isinstance(record.args, tuple):
            entry |= zip(_ACCESS_ARGUMENTS, record.args, strict=False)
            for key in _ACCESS_FACTS:
                entry[key] = known[key]
            return self._text(entry)
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            entry["stack"] = self.formatStack(record.stack_info)
        entry |= {key: value for key, value in known.items() if key not in _STANDARD and key not in entry}
        return self._text(entry)

    def _text(self, entry: dict[str, Any]) -> str:
        try:
            data: bytes = self._encode(entry)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return json.dumps(entry, default=str)
        # What is not ASCII could end a line for some reader, or speak to a terminal.
        return data.decode() if data.isascii() and b"\x7f" not in data else json.dumps(entry, default=str)
