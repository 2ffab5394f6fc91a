"""A process on a terminal of its own, as a person starts it."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import threading
from collections.abc import Mapping


class Terminal(subprocess.Popen[bytes]):
    """Runs a command as the leader of a terminal's session. `settings` are for stty, before it starts."""

    def __init__(self, command: list[str], environment: Mapping[str, str], *settings: str) -> None:
        pid, self.descriptor = pty.fork()
        if pid == 0:
            if settings:
                subprocess.run(["stty", *settings], check=True)
            os.execve(command[0], command, environment)
        # What Popen's __init__ would have set, for its wait, poll and kill.
        self.pid = pid
        self.args = command
        self.returncode = None
        self.stdin = self.stdout = self.stderr = None
        self._waitpid_lock = threading.Lock()
        self._child_created = True

    def __exit__(self, *_: object) -> None:
        """Close the terminal; the process is whoever waits for it's to end."""
        os.close(self.descriptor)

    def press(self, keys: bytes) -> None:
        """Type something."""
        os.write(self.descriptor, keys)

    def read_all(self) -> str:
        """Everything that is written to it until its last process has gone."""
        shown = b""
        while select.select([self.descriptor], [], [], 20)[0]:
            try:
                data = os.read(self.descriptor, 65536)
            except OSError:  # EIO: nobody has it open any more
                break
            if not data:
                break
            shown += data
        return shown.decode()
