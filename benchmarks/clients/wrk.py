"""Load from wrk: many connections, sessions mixed over them, and little CPU of its own."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.rows import Sample, Unmeasurable

SCRIPT = Path(__file__).with_name("mixed.lua")


def mixed(port: int, cookies: Sequence[str], *, clients: int, seconds: int) -> Sample:
    """Ask over `clients` connections, each time for one of the sessions by chance.

    Returns requests, seconds, p50 and p90. Raises Unmeasurable when a request fails.
    """
    program = shutil.which("wrk")
    if program is None:
        raise Unmeasurable("wrk is not installed; benchmarks/install-peers does that")
    with tempfile.NamedTemporaryFile("w", suffix=".sessions") as sessions:
        sessions.write("".join(f"{cookie}\n" for cookie in cookies))
        sessions.flush()
        done = subprocess.run(
            [program, "-t1", f"-c{clients}", f"-d{seconds}", "-s", str(SCRIPT), f"http://127.0.0.1:{port}"],
            env={**os.environ, "SESSIONS": sessions.name, "SEED": str(random.getrandbits(31))},
            capture_output=True,
            text=True,
            check=False,
        )
    found = next((line[5:] for line in done.stdout.splitlines() if line.startswith("JSON ")), None)
    if found is None:
        raise Unmeasurable(f"wrk: {done.stderr or done.stdout}")
    sample: Sample = json.loads(found)
    failed = sample.pop("http_errors") + sample.pop("socket_errors")
    if failed:
        raise Unmeasurable(f"{failed:.0f} of {sample['requests']:.0f} requests failed")
    return sample
