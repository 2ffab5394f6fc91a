"""What the log tests share: a process that logs, and pipes that nobody reads."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 20.0


def script(code: str, **options: object) -> subprocess.Popen[bytes]:
    """Run Python code that logs, in a process of its own."""
    preamble = (
        "import logging, os, sys\n"
        "from supervisor.logs import lines as logs\n"
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


def read_until(reader: int, end: bytes) -> bytes:
    """Read until the end of the data is `end`."""
    return read_while(reader, lambda data: not data.endswith(end))


def read_while(reader: int, wanting: Callable[[bytes], bool]) -> bytes:
    """Read until the data is no longer wanting."""
    data = b""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    while wanting(data):
        assert poll.poll(SECONDS * 1000), data[-200:]
        data += os.read(reader, 65536)
    return data
