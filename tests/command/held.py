"""A real segment and runtime folder, held by a process that can be stopped and killed; see holder.py."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from ops import service
from shmclaims.segment import Segment, SegmentError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
APP = "runtime_dir: run\nservers:\n  counter:\n    app: m:app\n"


class Held:
    """The holder process, and the config that names its folder."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "config.yaml"
        self.config.write_text(APP)
        self.runtime_dir = folder / "run"
        self.kept: int | None = None
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "holder.py"), str(self.runtime_dir)],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == str(self.process.pid).encode()
        found = service.read(self.runtime_dir)
        assert found is not None
        self.segment = found.segments["counter"]

    def kill(self) -> None:
        """SIGKILL, and wait for its end. The segment is kept from services that start meanwhile and would remove it."""
        self.kept = os.open(f"/dev/shm{self.segment}", os.O_RDWR)
        self.process.kill()
        self.process.wait()
        fcntl.lockf(self.kept, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def clean_up(self) -> None:
        """Nothing of it stays."""
        if self.kept is not None:
            os.close(self.kept)
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        try:
            segment = Segment.attach(self.segment)
        except SegmentError:
            return
        segment.unlink()
        segment.close()


def wait_for_state(pid: int, state: str) -> None:
    """Wait until the kernel says that a process is in a state."""
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != state:
        assert time.monotonic() < deadline
