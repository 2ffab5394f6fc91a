"""Freed memory stays in a worker: large bodies cost no page faults once it has served some."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import resource, sys
from supervisor.worker.memory import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()

def bodies():
    for _ in range(50):
        pieces = [bytes(250_000), bytes(250_000)]
        pieces.append(b"".join(pieces))

bodies()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
bodies()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    """Page faults of fifty large bodies in a process of its own."""
    return int(subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True).stdout)


def test_no_page_faults_for_large_bodies() -> None:
    """The same allocations fault again and again where the end of the heap is given back each time."""
    assert faults("kept") < 50
    assert faults("given back") > 200
