"""What may be shown of a session id in a log: ids can be all that a client needs to take a session over."""

from __future__ import annotations

from urllib.parse import quote

SHOWN = 8  # characters, and never more than half, as in the table's dumps


def prefix(session: str) -> str:
    """The part of an id that may be shown."""
    return session[: min(SHOWN, len(session) // 2)]


def without(session: str | None, text: str) -> str:
    """A path or an address with a session id in it, with only the part that may be shown."""
    if session is None:
        return text
    if session in text:
        return text.replace(session, f"{prefix(session)}...")
    return text.replace(quote(session, safe=""), f"{prefix(session)}...") if "%" in text else text
