"""The environments of the real clients and servers: what would not go together, and what the product does not need.

    python tests/clients/environments.py     make them, where they are missing or their list has changed

Each has gym-supervise itself, in place, since its workers run in it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
FOLDER = REPO / ".venv-clients"

PYTHON: dict[str, list[str]] = {
    "mcp1": ["mcp>=1.30,<2"],
    "mcp2": ["mcp>=2.3", "fastmcp>=4.2"],
    "apps": [
        "python-socketio>=5.18",
        "aiohttp>=3.9",
        "websockets>=12",
        "gradio>=6",
        "gradio_client>=2",
        "marimo>=0.25",
        "shiny>=1.8",
        "streamlit>=1.67",
        "playwright>=1.50",
    ],
}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
"""The system's own, such as Debian's package; without one its rows are skipped."""

NODE = ["socket.io-client@4"]


def python(environment: str) -> str:
    """The interpreter of an environment."""
    return str(FOLDER / environment / "bin" / "python")


def command(environment: str) -> str:
    """The environment's own gym-supervise."""
    return str(FOLDER / environment / "bin" / "gym-supervise")


def make() -> None:
    """Make what is missing."""
    for name, packages in PYTHON.items():
        folder = FOLDER / name
        _make(folder, packages, [[sys.executable, "-m", "venv", str(folder)], _pip(name, packages)])
    folder = FOLDER / "node"
    install = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", *NODE]
    _make(folder, NODE, [install])


def _pip(name: str, packages: list[str]) -> list[str]:
    quiet = ["--quiet", "--disable-pip-version-check"]
    return [python(name), "-m", "pip", "install", *quiet, "--editable", str(REPO), *packages]


def _make(folder: Path, packages: list[str], commands: list[list[str]]) -> None:
    wanted = hashlib.sha256(json.dumps([sys.version_info[:2], packages]).encode()).hexdigest()
    mark = folder / ".made"
    if mark.exists() and mark.read_text() == wanted:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for command in commands:
        print(" ".join(command), flush=True)
        subprocess.run(command, check=True)
    mark.write_text(wanted)


if __name__ == "__main__":
    make()
