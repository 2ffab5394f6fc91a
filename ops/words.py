"""Ends of processes in words."""

from __future__ import annotations

import signal


def exit_words(status: int) -> str:
    """An exit status, or a signal's number, negative, in words."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
