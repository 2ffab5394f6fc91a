"""Processes in a pid namespace of their own, as in a container."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
needs_namespaces = pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode != 0,
    reason="making a pid namespace needs root and util-linux",
)


def is_first(pid: int) -> bool:
    """Whether a process is number 1 in its own namespace."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line for line in lines if line.startswith("NSpid")).split()[-1] == "1"
