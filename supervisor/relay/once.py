"""An app's error is logged once, by the worker that runs the app.

The acceptor's server knows only that its own callable, the router, has not answered: it makes up for that with the 500,
the closed connection or the reset stream that its protocol has, byte for byte what the owner's would send. What it says
of that in the log is dropped, since the owner has told what happened, with the traceback.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar

_logged = ContextVar("logged by the owner", default=False)

OF_SERVERS = ("Exception in ASGI application", "ASGI callable returned without")


class OwnersAppFailed(Exception):
    """The app of a relayed WebSocket has raised."""


def logged_by_owner() -> None:
    """What this request's server will say of its app's fault is in the log already. Servers run a task per request."""
    _logged.set(True)


def drop_repetitions() -> None:
    """Keep what is said of relayed requests' errors a second time out of the server's log."""
    logging.getLogger("uvicorn.error").addFilter(_keeps)


def _keeps(record: logging.LogRecord) -> bool:
    return not (_logged.get() and isinstance(record.msg, str) and record.msg.startswith(OF_SERVERS))
