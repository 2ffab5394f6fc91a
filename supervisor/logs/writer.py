"""Writes log lines to a descriptor without ever waiting for its reader.

A terminal under Ctrl-S, a full pipe or a stopped journal must not stop the supervisor, which would miss deaths, nor a
worker's event loop. Setting O_NONBLOCK on the inherited descriptor is no way out: the flag belongs to the open file,
which the shell and every child share. So the file is opened anew where the kernel allows it, and sockets (journald)
are written to with MSG_DONTWAIT.

`DirectWriter` tries once and drops what does not go out: for the supervisor, which has one thread. `QueuedWriter` has
a bounded queue, and a thread while it is needed: for the workers.
"""

from __future__ import annotations

import collections
import contextlib
import os
import select
import socket
import stat
import threading
from typing import Protocol

MAX_LINE_BYTES = 32 * 1024
"""Half of a pipe's buffer. Longer lines are cut."""

QUEUE_LINES = 4096
FLUSH_SECONDS = 1.0


class LineWriter(Protocol):
    """Takes whole lines, never waits, never raises."""

    @property
    def dropped(self) -> int:
        """Lines that did not go out."""

    def write(self, line: bytes) -> None:
        """Take a line that ends with a newline."""

    def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """Write what is left for at most so long, and give back what was opened."""

    def discard(self) -> None:
        """Give back what was opened and write nothing more: a forked child does not own its parent's lines."""


class Sink:
    """A descriptor that is written to without waiting."""

    def __init__(self, descriptor: int, *, reopen: bool = True) -> None:
        self._descriptor = descriptor
        self._socket: socket.socket | None = None
        self._reopened = False
        self._may_wait = not reopen
        if reopen:
            self._reopen(descriptor)

    def _reopen(self, descriptor: int) -> None:
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISSOCK(mode):
                self._socket = socket.socket(fileno=os.dup(descriptor))
            elif stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
                flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
                self._descriptor = os.open(f"/proc/self/fd/{descriptor}", flags)
                self._reopened = True
        except OSError:  # another user's terminal, no /proc, a pipe without reader, or no descriptor at all
            self._may_wait = True

    def write(self, data: bytes) -> int:
        """Write what goes; the number of bytes. Raises BlockingIOError, or OSError when there is no reader."""
        if self._socket is not None:
            return self._socket.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        if self._may_wait:  # second best: another writer can fill the pipe between the two calls
            if not self.wait(0):
                raise BlockingIOError
            data = data[: select.PIPE_BUF]
        return os.write(self._descriptor, data)

    def wait(self, seconds: float) -> bool:
        """Wait until something can be written, or the reader has gone."""
        poll = select.poll()
        poll.register(self._descriptor if self._socket is None else self._socket, select.POLLOUT)
        return bool(poll.poll(seconds * 1000))

    def close(self) -> None:
        """Close what was opened here; the descriptor itself is the caller's."""
        with contextlib.suppress(OSError):
            if self._reopened:
                os.close(self._descriptor)
        if self._socket is not None:
            self._socket.close()
        self._reopened, self._socket, self._descriptor = False, None, -1


def _report(lines: int) -> bytes:
    return b"(%d log lines were dropped here: their reader was too slow)\n" % lines


class DirectWriter:
    """Tries each line once. The rest of a line that went out in part goes before the next one."""

    def __init__(self, sink: Sink) -> None:
        self.dropped = 0
        self._sink = sink
        self._reported = 0
        self._rest = b""

    def write(self, line: bytes) -> None:
        """Write the line now, or drop it."""
        if self._rest:
            self._put(b"")
        if not self._rest and self._reported < self.dropped:
            missing = self.dropped - self._reported
            if self._put(_report(missing)):
                self._reported += missing
        if self._rest or self._reported < self.dropped or not self._put(line):
            self.dropped += 1

    def _put(self, line: bytes) -> bool:
        """Whether the line is out or at least begun."""
        data = self._rest + line
        before = len(data)
        while data:
            try:
                data = data[self._sink.write(data) :]
            except BlockingIOError:
                break
            except OSError:  # EPIPE, EIO, ENOSPC: nothing that is worth failing for
                self._rest = b""
                return False
        begun = len(data) < before
        self._rest = data if begun or self._rest else b""
        return begun

    def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """Write the rest of a line that went out in part."""
        if self._rest and self._sink.wait(seconds):
            self._put(b"")
        self._sink.close()

    def discard(self) -> None:
        """Write nothing more."""
        self._sink.close()


class QueuedWriter:
    """Writes each line at once; while the reader does not read, queues lines for a thread that waits for it.

    Normally there is no thread: a worker's last line before a crash is out, and an app that forks does not fork a
    threaded process on our account. The thread ends when the queue is empty. The lock is held for moments only, and
    may be taken again by a signal handler or a finalizer that logs.
    """

    def __init__(self, sink: Sink, *, lines: int = QUEUE_LINES) -> None:
        self.dropped = 0
        self._reported = 0
        self._sink = sink
        self._lines = lines
        self._queue: collections.deque[bytes] = collections.deque()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def write(self, line: bytes) -> None:
        """Write the line now, or queue it behind those that wait, or drop it."""
        with self._lock:
            if len(self._queue) >= self._lines:
                self.dropped += 1
                return
            missing = self.dropped - self._reported
            if missing:
                self._reported += missing
                line = _report(missing) + line
            if self._thread is None:
                line = self._try(line)
            if line:
                self._queue.append(line)
                self._start()

    def _try(self, data: bytes) -> bytes:
        """Write what goes now; what is left. Lines that nobody will ever read are dropped."""
        try:
            while data:
                data = data[self._sink.write(data) :]
        except BlockingIOError:
            return data
        except OSError:  # EPIPE, EIO, ENOSPC: nothing that is worth failing for
            self.dropped += 1
            return b""
        return data

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._closed or not self._queue:
                    self._thread = None
                    return
                line = self._queue.popleft()
            while line and not self._closed:
                line = self._try(line)
                if line:
                    self._sink.wait(FLUSH_SECONDS)

    def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """Let the thread, where there is one, write what is queued, for at most so long."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
            self._closed = True
            thread.join(seconds)
        if self._thread is None:
            self._sink.close()

    def discard(self) -> None:
        """Write nothing more; in a forked child, where the thread is not."""
        self._sink.close()
