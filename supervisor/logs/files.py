"""Log files at USR1: what can be opened anew after a rotation, and what cannot.

A file that this process opened by its name, through a handler of the app's or of uvicorn's `log_config`, is opened
anew. Where stderr goes was decided by whoever started the service: a shell or a service manager opened the file, and
every child of every worker has its descriptor, so that opening it anew here would split the log in two. It is left
alone, and that is said.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import stat
from collections.abc import Iterator

logger = logging.getLogger("gym_supervise.logs")


def reopen() -> list[str]:
    """Open the files of all logging handlers of this process anew; returns their paths.

    One that cannot be opened is named in the log, and its handler goes on with the old file.
    """
    done = []
    for handler in _file_handlers():
        handler.acquire()
        try:
            if _reopen(handler):
                done.append(handler.baseFilename)
        except OSError as error:
            logger.error("%s cannot be opened anew (%s): lines go on into the old file", handler.baseFilename, error)  # noqa: TRY400
        finally:
            handler.release()
    return done


def _reopen(handler: logging.FileHandler) -> bool:
    if isinstance(handler, logging.handlers.WatchedFileHandler):
        handler.reopenIfNeeded()
        return True
    before = handler.stream
    if before is None:  # with `delay` it opens at its first line
        return False
    handler.mode = handler.mode.replace("w", "a")  # a file that was not rotated after all keeps what it has
    handler.stream = handler._open()
    before.close()
    return True


def _file_handlers() -> Iterator[logging.FileHandler]:
    """All that exist, also those behind a queue: what logging.shutdown goes by."""
    for reference in list(logging._handlerList):  # type: ignore[attr-defined]
        handler = reference()
        if isinstance(handler, logging.FileHandler):
            yield handler


class StandardError:
    """Where stderr goes, as it was at the start, and what became of that."""

    def __init__(self, descriptor: int = 2) -> None:
        self._descriptor = descriptor
        self._path = self._now()

    def fate(self) -> str | None:
        """What is to be said of it at USR1; None: it is no file, and there is nothing to open anew."""
        path, now = self._path, self._now()
        if path is None or now is None:
            return None
        if now == path:
            return f"stderr still goes to {path}, which is not for this service to open anew"
        return (
            f"stderr goes on into {now}: it was opened as {path} by whoever started this service, and cannot be opened "
            "anew from here; rotate it with copytruncate, or send stderr to the journal or a pipe"
        )

    def _now(self) -> str | None:
        try:
            if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                return None
            return os.readlink(f"/proc/self/fd/{self._descriptor}")
        except OSError:
            return None
