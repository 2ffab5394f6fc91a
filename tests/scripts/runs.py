"""A real `gym-supervise run` for tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from whole.harness import COMMAND, REPO, TAG, Service

EXAMPLES = REPO / "examples/scripts"


class Run(Service):
    """One `gym-supervise run OPTIONS SCRIPT ARGUMENTS`, in a folder of the test's."""

    def __init__(self, folder: Path, options: list[str], script: Path | str, *argv: str, workers: int = 4) -> None:
        super().__init__(folder, "unused:app", workers=workers)
        self.home = Path(tempfile.mkdtemp(prefix="gsv-"))  # the path of a socket may have 107 bytes, a test's has more
        self.runtime_dir = self.home / "gym-supervise/app"
        self.command = [COMMAND, "run", "--name", "app", *options, str(script), *argv]

    @property
    def environment(self) -> dict[str, str]:
        """With a runtime folder of its own."""
        own = {TAG: self.tag, "XDG_RUNTIME_DIR": str(self.home)}
        return {key: value for key, value in os.environ.items() if key != "RUNTIME_DIRECTORY"} | own

    def start(self, *, ready: bool = True) -> Run:
        """Start it; with `ready`, wait until every worker is."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self.environment,
            )
        if ready:
            self.wait_ready()
        return self

    def cleanup(self) -> list[str]:
        """What every service's does, and its folder goes."""
        left = super().cleanup()
        shutil.rmtree(self.home)
        return left

    def run(self, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run another command on this service, by its name."""
        command: list[Any] = [COMMAND, arguments[0], "app", *arguments[1:]]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=self.environment,
            cwd=self.folder,
        )
