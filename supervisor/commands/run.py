"""`gym-supervise run`: run a script that calls uvicorn, on several workers, without a config file."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from typing import Any

import click

from server_adapters.registry import PRESETS
from supervisor.config import Config, from_options
from supervisor.config.document import Path, parse
from supervisor.config.paths import NAME, script_name, script_stem
from supervisor.logs import lines as logs

EPILOG = """\b
Examples:
  gym-supervise run -w 4 --preset gym-resources app.py
  gym-supervise run -w 4 --preset gym-resources --bind :9000 app.py --difficulty hard
  gym-supervise run -w 4 --preset starlette-session --set affinity.field=user_id app.py
  gym-supervise run -w 4 --preset none --set uvicorn.root_path=/api --set timeouts.graceful_seconds=5 app.py

\b
From another shell, with the script, or with what --name has said:
  gym-supervise status app.py
  gym-supervise reload app.py

\b
Address, workers and options that are not given here are those of the script's call of uvicorn; to learn them the
script is run up to that call once more than there are workers. --bind, --workers and --preset together spare that.
"""


PRESET_HELP = f"How its sessions are found; required when there are several workers. One of {', '.join(PRESETS)}."


@click.command(
    "run",
    epilog=EPILOG,
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
)
@click.option("-w", "--workers", type=int, help="How many. Default: the script's own number, or 1.")
@click.option("-p", "--preset", help=PRESET_HELP)
@click.option("-b", "--bind", metavar="ADDRESS", help="HOST:PORT, :PORT or unix:PATH. Default: the script's own.")
@click.option("--name", help="What other commands call it. Default: they are given the script.")
@click.option("--health", metavar="PATH", help="A path that is answered without the app, for probes.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error", "critical"]))
@click.option("--log-format", type=click.Choice(["console", "json"]))
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any other key of a server; repeatable.")
@click.argument("script", type=click.Path())
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    script: str,
    *,
    arguments: tuple[str, ...],
    workers: int | None,
    preset: str | None,
    bind: str | None,
    name: str | None,
    health: str | None,
    log_level: str | None,
    log_format: str | None,
    settings: tuple[str, ...],
) -> int:
    """Run SCRIPT, a Python file that calls uvicorn, on several workers; ARGUMENTS are its own."""
    from supervisor.commands.serve import run_config
    from supervisor.scripts import asking

    given = {"bind": bind, "workers": workers, "preset": preset, "health": health}
    log = {"level": log_level, "format": log_format}
    config = configure(script, arguments, given, log, name=name, settings=settings)
    logs.configure(config.log, role="guardian")
    config = asking.complete(config, options={"affinity": "--preset"})
    logging.getLogger("gym_supervise.config").info(
        "`gym-supervise status %s` shows it, from another shell", script if name is None else name
    )
    return run_config(config)


def configure(
    script: str,
    arguments: Iterable[str],
    given: dict[str, Any],
    log: dict[str, str | None],
    *,
    name: str | None = None,
    settings: Iterable[str] = (),
) -> Config:
    """The config that options say. Raises ConfigError, in their words, and click.UsageError."""
    if not os.path.isfile(script):
        found = "a folder" if os.path.isdir(script) else "no file"
        raise click.UsageError(f"SCRIPT: found {found} {script}, expected a Python file that calls uvicorn")
    server: dict[str, Any] = {"app": {"script": script, "argv": list(arguments)}, "chdir": os.getcwd()}
    named = name if name and NAME.fullmatch(name) else script_stem(script)
    here = ("servers", named)
    options: dict[Path, str] = {
        ("name",): "--name",
        here: "--set",
        (*here, "app"): "SCRIPT",
        (*here, "bind"): "--bind",
        (*here, "workers"): "--workers",
        (*here, "health"): "--health",
        (*here, "affinity", "preset"): "--preset",
    }
    for path, value in _settings(settings):
        _put(server, path, value)
    for key in ("bind", "workers", "health"):
        if given.get(key) is not None:
            server[key] = given[key]
    if given.get("preset") is not None:
        _put(server, ("affinity", "preset"), given["preset"])
    if isinstance(server.get("affinity"), dict) and "preset" not in server["affinity"]:
        raise click.UsageError("--set affinity...: found no preset to go with it, expected --preset")
    data = {
        "name": name or script_name(script),
        "servers": {named: server},
        "log": {key: value for key, value in log.items() if value is not None},
    }
    return from_options(data, options)


def _settings(texts: Iterable[str]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not all(key.split(".")):
            raise click.UsageError(f"--set: found {text!r}, expected KEY=VALUE, such as timeouts.graceful_seconds=5")
        document = parse(value, {})
        is_text = key.startswith("env.") or bool(document.problems)
        yield tuple(key.split(".")), value if is_text else document.data


def _put(server: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for part in path[:-1]:
        inner = server.setdefault(part, {})
        if not isinstance(inner, dict):
            raise click.UsageError(f"--set {'.'.join(path)}: found a value for {part} as well, expected one of the two")
        server = inner
    server[path[-1]] = value
