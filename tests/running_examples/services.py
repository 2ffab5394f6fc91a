"""The examples as their own configs run them, on a port and in a folder of the test's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from whole.harness import REPO, Service

EXAMPLES = REPO / "examples"


def example(folder: Path, name: str, *, server: str | None = None, **changes: Any) -> Service:
    """A service, to be started, as `examples/NAME.yaml` has it; `changes` go into its server, mappings key by key."""
    folder.mkdir(parents=True, exist_ok=True)
    servers = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())["servers"]
    options: dict[str, Any] = servers[server or name]
    options |= {"bind": "127.0.0.1:0", "chdir": str(REPO)}
    for key, value in changes.items():
        options[key] = {**options.get(key, {}), **value} if isinstance(value, Mapping) else value
    return Service(folder, options.pop("app"), **options)
