"""Reads the config file.

`load` reads all of it for `serve` and `check`, and reports every error at once. `locate` finds only where a service
runs, for the commands that talk to a running one: they must work while the file is being edited, and from a shell
without the service's secrets in its environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from supervisor.config import checks, paths
from supervisor.config.document import Document, parse
from supervisor.config.document import Path as DocumentPath
from supervisor.config.errors import add_validation_problems, describe, key, shape_tail
from supervisor.config.models import Config
from supervisor.errors import ConfigError


@dataclass(frozen=True)
class Place:
    """Where a service has its runtime folder: the one that is configured, or all that the defaults allow."""

    name: str
    runtime_dirs: tuple[Path, ...]
    source: Path


def load(
    path: str | os.PathLike[str], environment: Mapping[str, str] = os.environ, *, affinity_later: bool = False
) -> Config:
    """Read and check a config file.

    Args:
        path: the YAML file; paths in it are relative to its folder.
        environment: for `${NAME}` and for the default runtime_dir.
        affinity_later: several workers without an affinity are no error here: the caller looks at the app first.

    Returns:
        The config, with its defaults filled in and its paths absolute.

    Raises:
        ConfigError: with every error of the file.

    """
    source = Path(path)
    document = _read(source, environment)
    folder = os.path.abspath(source.parent)
    config = None
    if document.data is not None or not document.problems:
        _fill_in(document, source, folder, environment)
        config = _validate(document, folder, affinity_later=affinity_later)
    if document.problems or config is None:
        raise ConfigError(_lines(source, document))
    return config.with_origin(source, checks.warnings(config), document.lines)


def from_options(
    data: dict[str, Any], options: Mapping[DocumentPath, str], environment: Mapping[str, str] = os.environ
) -> Config:
    """The config of a service that has no file, from what a command line says. Paths are relative to this folder.

    Args:
        data: what would stand in the file, with a `name`.
        options: the option that has said a key. Errors name it.
        environment: for the default runtime_dir.

    Raises:
        ConfigError: with every error.

    """
    document = Document(data=data, lines={path: number for number, path in enumerate(options, 1)})
    folder = os.getcwd()
    _fill_in(document, Path(str(data["name"])), folder, environment)
    config = _validate(document, folder, affinity_later=True)
    if document.problems or config is None:
        lines = [f"{_option(options, problem.path)}: {problem.text}" for problem in document.problems]
        raise ConfigError(list(dict.fromkeys(lines)))
    return config.of_options()


def _option(options: Mapping[DocumentPath, str], path: DocumentPath) -> str:
    """The option at a key, or above it, with the rest of the key."""
    for size in range(len(path), 0, -1):
        if path[:size] in options:
            return " ".join(filter(None, (options[path[:size]], key(path[size:]))))
    return key(path)


def _validate(document: Document, folder: str, *, affinity_later: bool) -> Config | None:
    config = None
    try:
        config = Config.model_validate(document.data, context={"folder": folder})
    except ValidationError as error:
        add_validation_problems(document, error)
    checks.add_problems(document, folder, affinity_later=affinity_later)
    return config


def locate(path: str | os.PathLike[str], environment: Mapping[str, str] = os.environ) -> Place:
    """Find where the service of a config file has its runtime folder, whatever else is in the file.

    A script that `run` runs, or the `--name` that it was given, does as well: there is no config file then.

    Raises:
        ConfigError: the file cannot be read, or its `name` or `runtime_dir` cannot.

    """
    source = Path(path)
    if (name := paths.name_of_run(os.fspath(path))) is not None:
        return Place(name, tuple(paths.candidates(name, environment)), Path(os.path.abspath(source)))
    document = _read(source, environment)
    data = document.data if isinstance(document.data, dict) else {}
    document.problems = [
        problem for problem in document.problems if not problem.path or problem.path[0] in ("name", "runtime_dir")
    ]
    name, runtime_dir = data.get("name", paths.default_name(source)), data.get("runtime_dir")
    if ("name",) not in document.broken and not (isinstance(name, str) and paths.NAME.fullmatch(name)):
        document.complain(("name",), shape_tail(describe(name), paths.NAME_FORM))
    if runtime_dir is not None and not (isinstance(runtime_dir, str) and runtime_dir and "\0" not in runtime_dir):
        document.complain(("runtime_dir",), shape_tail(describe(runtime_dir), "the path of a folder"))
    if document.problems:
        raise ConfigError(_lines(source, document))
    if runtime_dir is None:
        places = paths.candidates(name, environment)
    else:
        places = [Path(os.path.normpath(os.path.join(os.path.abspath(source.parent), runtime_dir)))]
    return Place(name, tuple(places), Path(os.path.abspath(source)))


def _read(source: Path, environment: Mapping[str, str]) -> Document:
    try:
        text = source.read_bytes().decode("utf-8-sig")
    except OSError as error:
        do = "`gym-supervise init` writes one" if isinstance(error, FileNotFoundError) else ""
        what = f"found nothing that can be read ({error.strerror}), expected a YAML file"
        raise ConfigError([f"{source}: {what}; {do}" if do else f"{source}: {what}"]) from None
    except UnicodeDecodeError as error:
        line = source.read_bytes()[: error.start].count(b"\n") + 1
        raise ConfigError([f"{source}:{line}: found bytes that are not UTF-8, expected UTF-8"]) from None
    return parse(text, environment)


def _fill_in(document: Document, source: Path, folder: str, environment: Mapping[str, str]) -> None:
    """Put in the defaults that depend on the file and the environment, and what has a short form."""
    data = {} if document.data is None else document.data
    document.data = data
    if not isinstance(data, dict):
        return
    data.setdefault("name", paths.default_name(source))
    if data.get("runtime_dir") is None:
        data["runtime_dir"] = str(paths.default_runtime_dir(str(data["name"]), environment))
    elif isinstance(data["runtime_dir"], str) and data["runtime_dir"]:
        data["runtime_dir"] = os.path.normpath(os.path.join(folder, data["runtime_dir"]))
    if data.get("log", ...) is None:
        del data["log"]
    servers = data.get("servers")
    for name, server in servers.items() if isinstance(servers, dict) else ():
        if isinstance(server, dict):
            _fill_in_server(document, name, server)


def _fill_in_server(document: Document, name: str, server: dict[str, Any]) -> None:
    path = ("servers", name)
    for section in ("affinity", "env", "claims", "uvicorn", "timeouts", "recycle"):
        if section in server and server[section] is None:
            del server[section]  # a section whose keys are all commented out
    if isinstance(server.get("affinity"), str):
        server["affinity"] = {"preset": server["affinity"]}
        document.lines[(*path, "affinity", "preset")] = document.line((*path, "affinity"))
    env = server.get("env")
    if isinstance(env, dict):
        for variable, value in env.items():
            if isinstance(value, bool | int | float):  # a text is meant: `DEBUG: 1`, `HEX: 010`
                env[variable] = document.texts.get((*path, "env", variable), str(value))
    argv = server["app"].get("argv") if isinstance(server.get("app"), dict) else None
    if isinstance(argv, list):
        for number, value in enumerate(argv):
            if isinstance(value, bool | int | float):  # `argv: [--port, 8000]`
                argv[number] = document.texts.get((*path, "app", "argv", number), str(value))


def _lines(source: Path, document: Document) -> list[str]:
    lines = []
    for problem in sorted(document.problems, key=lambda problem: problem.line):
        place = f"{source}:{problem.line}: "
        lines.append(f"{place}{key(problem.path)}: {problem.text}" if problem.path else f"{place}{problem.text}")
    return list(dict.fromkeys(lines))
