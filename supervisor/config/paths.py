"""Names and folders: what a service is called and where its runtime folder is."""

from __future__ import annotations

import os
import re
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NAME_FORM = "letters, digits, dots, dashes and underscores, at most 64, a letter or digit first"

STATE_FILE = "supervisor.json"
SOCKET_SUFFIX = ".4294967295.sock"
"""The longest end of a private socket's name: its worker's incarnation, which is counted from 1 at each start."""


def default_name(source: Path) -> str:
    """The config file's name without its ending."""
    return source.stem


def script_name(script: str) -> str:
    """What the service of a script is called: every other server's script is an app.py, so the path is in it."""
    path = os.path.abspath(script)
    return f"{script_stem(script)[:40]}-{zlib.crc32(os.fsencode(path)):08x}"


def script_stem(script: str) -> str:
    """A script's own name, as a server may be called."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", os.path.splitext(os.path.basename(script))[0])
    return re.sub(r"^[^A-Za-z0-9]+", "", stem)[:64] or "script"


def name_of_run(given: str) -> str | None:
    """The name of a service without a config file, from its script, or as `run --name` gave it; None: a config."""
    if given.endswith(".py"):
        return script_name(given)
    plain = NAME.fullmatch(given) and not given.endswith((".yaml", ".yml", ".json"))
    return given if plain and not os.path.exists(given) else None


def _xdg(environment: Mapping[str, str]) -> Path | None:
    """$XDG_RUNTIME_DIR where it can be used: set, absolute and there (`su` leaves it pointing at nothing)."""
    folder = environment.get("XDG_RUNTIME_DIR", "")
    return Path(folder) if os.path.isabs(folder) and os.path.isdir(folder) else None


def _temporary(name: str) -> Path:
    """One under /tmp for each user; who makes it checks owner and mode, since /tmp is everybody's."""
    return Path("/tmp" if os.path.isdir("/tmp") else tempfile.gettempdir(), f"gym-supervise-{os.getuid()}", name)  # noqa: S108


def default_runtime_dir(name: str, environment: Mapping[str, str]) -> Path:
    """Where a service without `runtime_dir` keeps its sockets."""
    given = environment.get("RUNTIME_DIRECTORY", "").split(":")[0]
    if os.path.isabs(given):
        return Path(given)
    xdg = _xdg(environment)
    return xdg / "gym-supervise" / name if xdg else _temporary(name)


def candidates(name: str, environment: Mapping[str, str]) -> list[Path]:
    """Where a service without `runtime_dir` may run, also when another shell or systemd started it; likeliest first."""
    places = [
        default_runtime_dir(name, environment),
        *([xdg / "gym-supervise" / name] if (xdg := _xdg(environment)) else []),
        Path(f"/run/user/{os.getuid()}/gym-supervise", name),
        Path("/run/gym-supervise", name),
        Path("/run", name),
        _temporary(name),
    ]
    return list(dict.fromkeys(places))
