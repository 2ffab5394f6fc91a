"""A way to serve an app: where it listens, which processes it has, and what can be done to it."""

from __future__ import annotations

import http.client
import os
import signal
from collections.abc import Callable, Sequence

from benchmarks.harness import processes
from benchmarks.harness.processes import Kept
from benchmarks.harness.rows import Unmeasurable

KEEP_ALIVE_SECONDS = 600
"""For every variant: a connection that waits for its turn in a round must not be closed meanwhile."""


class Variant:
    """A running variant on 127.0.0.1:`port`.

    `reload` replaces all workers as its operator would, and returns when they are; `relayed` counts the requests that
    went through two workers; `sessions` are the open sessions of each worker.
    """

    def __init__(
        self,
        name: str,
        port: int,
        kept: Sequence[Kept],
        *,
        reload: Callable[[], None] | None = None,
        relayed: Callable[[], int] | None = None,
        sessions: Callable[[], list[int]] | None = None,
    ) -> None:
        self.name = name
        self.port = port
        self.kept = kept
        self.reload = reload
        self.relayed = relayed
        self.sessions = sessions

    def pids(self) -> list[int]:
        """All its processes."""
        return [pid for one in self.kept for pid in one.pids()]

    def cpu(self) -> float:
        """Seconds of CPU that its processes have used."""
        return processes.cpu_seconds(self.pids())

    def pss(self) -> int:
        """Bytes of memory, what is shared divided among those that share it."""
        return processes.pss_bytes(self.pids())

    def kill(self, worker: int) -> None:
        """SIGKILL a worker by its pid."""
        if worker not in self.pids():
            raise Unmeasurable(f"{self.name}: {worker} is none of its processes")
        os.kill(worker, signal.SIGKILL)

    def stop(self) -> None:
        """End all its processes."""
        for one in reversed(self.kept):
            one.stop()


def answers(port: int) -> bool:
    """Whether the app behind a port answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/whoami")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
