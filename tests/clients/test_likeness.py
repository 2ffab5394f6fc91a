"""`check` knows each row's server by its looks, in an environment that has the real packages."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from clients.environments import REPO, command
from clients.rows import ROWS

WRAPPED = {"tests.clients.apps.streamlit_upload:app": "examples.upload:app"}
"""Apps of the tests around the real ones: a function shows nothing."""

APPS = sorted({(row.environment, WRAPPED.get(row.app, row.app), row.preset) for row in ROWS})


@pytest.mark.parametrize(("environment", "app", "preset"), APPS)
def test_check_proposes_the_preset(tmp_path: Path, environment: str, app: str, preset: str) -> None:
    """With two workers and no affinity, which is an error."""
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"servers": {"app": {"app": app, "chdir": str(REPO), "workers": 2}}}))
    done = subprocess.run(
        [command(environment), "check", str(config)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2, done.stderr
    assert f"it looks like `affinity: {{preset: {preset}}}`" in done.stderr
