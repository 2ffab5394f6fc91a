"""Exit statuses in words."""

from __future__ import annotations

import signal


def describe(status: int) -> str:
    """How a process ended: `status` is its exit status, or its signal's number, negative."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
