"""gym-supervise itself, with the preset gym-resources."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.harness.processes import ROOT, Kept
from benchmarks.servers import COOKIE, SECRET
from benchmarks.servers.variant import KEEP_ALIVE_SECONDS, Variant
from ops import service
from ops.dump import Views

NAME = "gym-supervise"


def supervised(folder: Path, app: str, *, workers: int, core: int | None = None, **options: Any) -> Variant:
    """Serve benchmarks.servers.APP on `workers` workers; `options` are more keys of its server in the config."""
    runtime_dir = folder / "run"
    server = {
        "app": f"benchmarks.servers.{app}:app",
        "chdir": str(ROOT),
        "bind": "127.0.0.1:0",
        "workers": workers,
        "affinity": {"preset": "gym-resources", "cookie": COOKIE, "secret": SECRET},
        "uvicorn": {"access_log": False, "timeout_keep_alive": KEEP_ALIVE_SECONDS},
        "timeouts": {"graceful_seconds": 3},
    }
    config = folder / "config.yaml"
    document = {"name": "bench", "runtime_dir": str(runtime_dir), "servers": {"app": server | options}}
    config.write_text(json.dumps(document))
    command = [sys.executable, "-c", "import gym_supervise; gym_supervise.main()"]
    kept = Kept([*command, "serve", str(config)], folder / "serve.log", core=core)
    try:
        kept.wait_for(lambda: _bind(runtime_dir, workers) is not None, NAME)
    except BaseException:
        kept.stop()
        raise
    bind = _bind(runtime_dir, workers)
    assert bind is not None

    def reload() -> None:
        before = [worker["pid"] for worker in _server(runtime_dir)["workers"]]
        kept.signal(signal.SIGHUP)
        kept.replaced(before)

    return Variant(
        NAME,
        int(bind.rpartition(":")[2]),
        [kept],
        reload=reload,
        sessions=lambda: [worker["sessions"] for worker in _server(runtime_dir)["workers"]],
        relayed=lambda: sum(worker["relayed_out"] for worker in _server(runtime_dir)["workers"]),
    )


def _server(runtime_dir: Path) -> dict[str, Any]:
    """The server's entry in `status --json`; empty before there is one."""
    found = service.read(runtime_dir) if runtime_dir.exists() else None
    if found is None or not found.segments:
        return {}
    with Views(found) as views:
        server: dict[str, Any] = views.status(now=time.monotonic())["servers"].get("app", {})
    return server


def _bind(runtime_dir: Path, workers: int) -> str | None:
    """Where it listens, once every worker is ready."""
    server = _server(runtime_dir)
    ready = [worker for worker in server.get("workers", ()) if worker["state"] == "ready"]
    return server["bind"] if len(ready) == workers else None
