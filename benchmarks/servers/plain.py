"""uvicorn's own workers, without affinity: what a session costs when nobody looks after it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from benchmarks.harness.processes import Kept, free_port
from benchmarks.servers.variant import KEEP_ALIVE_SECONDS, Variant, answers

GRACEFUL_SECONDS = 3
STARTED = "Started server process"


def uvicorn_command(app: str, *options: str, level: str = "warning") -> list[str]:
    """The command line of uvicorn, the same for every variant; `options` say where it listens."""
    command = [sys.executable, "-m", "uvicorn", f"benchmarks.servers.{app}", "--no-access-log", "--log-level", level]
    command += ["--timeout-keep-alive", str(KEEP_ALIVE_SECONDS), "--timeout-graceful-shutdown", str(GRACEFUL_SECONDS)]
    return [*command, *options]


def plain(
    folder: Path,
    app: str,
    *,
    workers: int,
    name: str = "plain",
    core: int | None = None,
    env: dict[str, str] | None = None,
) -> Variant:
    """Serve benchmarks.servers.APP with `uvicorn --workers N`, or one process for one worker."""
    port = free_port()
    options = ["--port", str(port)] + (["--workers", str(workers)] if workers > 1 else [])
    # How many are ready, uvicorn says in its log only.
    command = uvicorn_command(f"{app}:app", *options, level="info")
    log = folder / f"{name}.log"
    kept = Kept(command, log, core=core, env=env)

    def ready() -> bool:
        started = log.read_text(errors="replace").count(STARTED)
        return started >= workers and answers(port)

    try:
        kept.wait_for(ready, name)
    except BaseException:
        kept.stop()
        raise

    def reload() -> None:
        before = kept.forked()
        kept.signal(signal.SIGHUP)
        kept.replaced(before)

    return Variant(name, port, [kept], reload=reload)
