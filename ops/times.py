"""The one place where wall times become text: ISO 8601 in UTC."""

from __future__ import annotations

import datetime as dt

FORM = "%Y-%m-%dT%H:%M:%SZ"


def iso(seconds: float | None) -> str | None:
    """Wall seconds since 1970 as `2026-08-01T12:00:00Z`; None and 0, which stand for `not yet`, are None."""
    if not seconds:
        return None
    moment = dt.datetime.fromtimestamp(int(seconds), dt.UTC)
    return moment.strftime(FORM)


def seconds_of(text: str) -> float:
    """Wall seconds since 1970 of what `iso` made."""
    return dt.datetime.strptime(text, FORM).replace(tzinfo=dt.UTC).timestamp()


def age(seconds: float) -> str:
    """A duration for people: `3 s`, `5 min`, `2 h`, `4 d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
