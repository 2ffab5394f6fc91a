"""Runs commands inside the sandbox, one JSON line each: {"run": [...], "input": TEXT} -> {"status", "out", "err"}."""

from __future__ import annotations

import json
import subprocess
import sys

print(json.dumps({"status": 0, "out": "up", "err": ""}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    try:
        done = subprocess.run(
            asked["run"],
            input=asked.get("input", ""),
            capture_output=True,
            text=True,
            timeout=asked.get("seconds", 30),
            errors="replace",
        )
        answer = {"status": done.returncode, "out": done.stdout, "err": done.stderr}
    except (OSError, subprocess.TimeoutExpired) as error:
        answer = {"status": -1, "out": "", "err": repr(error)}
    print(json.dumps(answer), flush=True)
