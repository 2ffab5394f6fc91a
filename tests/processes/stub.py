"""A service with a small worker of its own, for tests of the processes: no HTTP, boots in milliseconds.

Run as a module with a config file and, if wanted, `--no-pause`. What a worker does besides its duty stands as Python
code in its server's `env`: STUB_BOOT runs before it is ready, STUB_READY after it, STUB_DRAIN when it is told to drain,
STUB_STOP when it is told to stop accepting, STUB_FINISH at its end. The code finds `spec`, `folder` (a Path, from
STUB_FOLDER) and `note` (writes a file there).
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from pathlib import Path
from typing import Any

from supervisor import serve
from supervisor.config import load
from supervisor.core.backoff import BackoffPolicy
from supervisor.processes import messages
from supervisor.processes.worker_spec import WorkerSpec

NO_PAUSE = BackoffPolicy(first_seconds=0.0)


def main(spec: WorkerSpec) -> int:
    """One worker's life."""
    folder = Path(os.environ["STUB_FOLDER"])

    def note(name: str, value: Any) -> None:
        unfinished = folder / f".{name}.{os.getpid()}"
        unfinished.write_text(json.dumps(value))
        unfinished.rename(folder / name)

    scope = {"spec": spec, "folder": folder, "note": note}

    def run(part: str) -> None:
        exec(os.environ.get(part, ""), scope)

    run("STUB_BOOT")
    messages.send(spec.link, messages.Ready())
    run("STUB_READY")
    poll = select.poll()
    poll.register(spec.link, select.POLLIN)
    row = spec.segment.ring.own(spec.incarnation)
    while True:
        row.beat(time.monotonic())
        if not poll.poll(500):
            continue
        message = messages.receive_to_worker(spec.link)
        if isinstance(message, messages.StopAccepting):
            run("STUB_STOP")
            messages.send(spec.link, messages.Quiet())
        elif isinstance(message, messages.Drain):
            run("STUB_DRAIN")
            messages.send(spec.link, messages.Drained())
        elif isinstance(message, messages.Share):
            messages.send(spec.link, messages.Shared())
        elif isinstance(message, messages.Finish):
            run("STUB_FINISH")
            return 0


if __name__ == "__main__":
    policy = NO_PAUSE if "--no-pause" in sys.argv else None
    sys.exit(serve.run(load(sys.argv[1]), main=main, policy=policy))
