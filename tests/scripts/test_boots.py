"""Boots that fail in the worker: what the supervisor is told, once, whatever the script makes of it."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import Any

import pytest

from supervisor.config import ServerConfig
from supervisor.processes import aside
from supervisor.processes.worker_spec import WorkerSpec
from supervisor.worker import script

APP = "import sys, uvicorn\nasync def app(scope, receive, send): ...\n"

THREAD = "import threading\nthreading.Thread(target=uvicorn.run, args=(app,)).start()\nthreading.Event().wait()\n"
GATHER = (
    "import asyncio\nasync def main():\n"
    "    await asyncio.gather(*(uvicorn.Server(uvicorn.Config(app, port=port)).serve() for port in (1, 2)))\n"
    "asyncio.run(main())\n"
)
BOOTS = {
    "never": ("pass\n", "it has come to its end without a call of uvicorn.run"),
    "exits": ("sys.exit('no')\n", "it has called sys.exit('no') before it called uvicorn"),
    "raises": ("def inner(): raise KeyError('mine')\ninner()\n", "KeyError: 'mine'"),
    "syntax": ("def (:\n", "SyntaxError: invalid syntax"),
    "thread": (THREAD, "uvicorn is called in a thread"),
    "twice at once": (GATHER, "uvicorn is called a second time"),
    "limit": ("uvicorn.run(app, limit_max_requests=9)\n", "found limit_max_requests=9, which is refused"),
    "import string": ("uvicorn.run('nowhere:app')\n", "there is no module 'nowhere'"),
    "tries again": (
        "while True:\n    try:\n        uvicorn.run('nowhere:app')\n    except SystemExit:\n        pass\n",
        "there is no module 'nowhere'",
    ),
    "imports itself": ("uvicorn.run('script:app')\n", "uvicorn is called again while its app is imported"),
}


class NeverReady:
    """In place of what serves: an app whose start-up takes for ever."""

    ready = False

    async def run(self) -> int:
        """Until it is cancelled."""
        await asyncio.Event().wait()
        return 0

    def stop_by_itself(self, reason: str) -> None:
        """Not here."""


def _boot(tell: aside.Tell[str], *, server: ServerConfig) -> None:
    nothing: Any = None
    spec = WorkerSpec(nothing, server, "app", 0, 1, nothing, [], nothing, "", 2)
    told: list[str] = []

    def fail(_spec: WorkerSpec, text: str) -> int:
        told.append(text)
        if len(told) > 1:
            Path("again").write_text(text)
        tell(text)
        return script.BOOT_FAILED

    assert server.script is not None
    status = script.run(spec, server.script, lambda *_: NeverReady(), fail)
    Path("status").write_text(str(status))


@pytest.mark.parametrize("name", BOOTS)
def test_a_worker_says_why_its_boot_failed(tmp_path: Path, name: str) -> None:
    """One reason, without our frames, and status 3."""
    text, expected = BOOTS[name]
    (tmp_path / "script.py").write_text(APP + text)
    data = {"app": {"script": tmp_path / "script.py"}, "chdir": tmp_path, "bind": "127.0.0.1:1", "workers": 2}
    function = functools.partial(_boot, server=ServerConfig.model_validate(data))
    said = aside.ask(function, seconds=30, env={}, folder=str(tmp_path))
    assert expected in said
    assert said.count("Traceback") <= 1
    assert "supervisor/" not in said
    assert not (tmp_path / "again").exists()
    if name not in ("thread", "tries again"):  # these end the process where they are
        assert (tmp_path / "status").read_text() == "3"
