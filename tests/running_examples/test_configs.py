"""Every example has a config beside it that says what it runs, and `gym-supervise check` agrees with it."""

from __future__ import annotations

import subprocess

import pytest
import yaml
from running_examples.services import EXAMPLES
from whole.harness import COMMAND

NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if not path.stem.startswith("_"))
NEEDS = {
    "chat": "socketio",
    "gradio_sum": "gradio",
    "notebook": "marimo",
    "sliders": "shiny",
    "upload": "streamlit",
}
"""Packages that `make test-clients` has; no environment for development does."""


@pytest.mark.parametrize("name", NAMES)
def test_the_config_is_sound(name: str) -> None:
    """As its comments tell people to run it; the servers' apps are imported, and nothing is bound or left."""
    path = EXAMPLES / f"{name}.yaml"
    text = path.read_text()
    assert f"gym-supervise serve examples/{name}.yaml" in text
    assert f"examples.{name}:app" in [server["app"] for server in yaml.safe_load(text)["servers"].values()]
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    done = subprocess.run([COMMAND, "check", str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
