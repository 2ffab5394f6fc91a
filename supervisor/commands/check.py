"""`gym-supervise check`: validate, import the apps, show what `serve` would run; change nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import click

from supervisor.commands.inspect_app import AppReport, inspect
from supervisor.config import Bind, Config, ServerConfig, load
from supervisor.config.checks import no_affinity, same_cookie
from supervisor.errors import BootError, ConfigError
from supervisor.scripts.proposing import propose

OURS = ("supervisor", "ops", "shmclaims", "server_adapters", "examples")
"""Top-level packages of ours that an app may have under the same name."""

IMPORTED_BY_WORKERS = ("supervisor", "shmclaims", "server_adapters")

EPILOG = """\b
Example:
  gym-supervise check config.yaml

\b
Exit status: 0 it can be served, 2 the config is wrong, 3 an app cannot be imported.
"""


@click.command("check", epilog=EPILOG)
@click.argument("config", type=click.Path())
def command(config: str) -> int:
    """Validate CONFIG, import its apps in child processes, and show what would run."""
    loaded = load(config, affinity_later=True)
    reports = {name: inspect(name, server) for name, server in loaded.servers.items()}
    loaded = loaded.with_servers({name: _as_said(server, reports[name]) for name, server in loaded.servers.items()})
    print(f"{loaded.name}: sockets in {loaded.runtime_dir}")
    for name, server in loaded.servers.items():
        for line in describe(name, server, reports[name]):
            print(line)
    for warning in warnings(loaded, reports):
        print(f"warning: {warning}", file=sys.stderr)
    _raise_problems(loaded, reports)
    print(f"{config} is right")
    return 0


def _as_said(server: ServerConfig, report: AppReport) -> ServerConfig:
    """The server with what its script has said."""
    if not report.bind:
        return server
    return server.with_script(bind=Bind.parse(report.bind), workers=report.workers)


def describe(name: str, server: ServerConfig, report: AppReport) -> Iterator[str]:
    """The lines about one server."""
    count = "1 worker" if server.workers == 1 else f"{server.workers} workers, placement {server.placement}"
    where = "an address that it says itself" if "bind" in server.open_to_script else str(server.bind)
    yield f"\n{name}: {server.app} on {where}, {count}"
    if server.from_script and not report.problem:
        yield f"  {' and '.join(sorted(server.from_script))} as the script says"
    if report.problem:
        return
    cookie = f", session cookie {report.cookie}" if report.cookie else ""
    yield f"  preset {report.preset}{cookie}" + (f"; {report.life}" if report.life else "")
    if server.affinity is None and (proposal := propose(report.likenesses)):
        yield f"  for more than one worker: {proposal}"
    if report.preset == "none":
        yield "  every request runs where it lands: the app keeps no sessions"
    if report.routes is None:
        yield "  its routes are not known: the app does not list them"
        return
    width = max((len(f"{method} {path}") for method, path, _ in report.routes), default=0)
    for method, path, role in report.routes:
        yield f"  {f'{method} {path}':<{width}}  {role}".rstrip()


def warnings(config: Config, reports: dict[str, AppReport]) -> Iterator[str]:
    """What is allowed but probably not meant."""
    yield from config.warnings
    seen: dict[tuple[str, str], str] = {}
    known = set(config.warnings)
    for name, report in reports.items():
        yield from (f"servers.{name}: {warning}" for warning in (*report.warnings, *unlike(report)))
        if config.servers[name].workers > 1:
            yield from (f"servers.{name}: {caution}" for caution in report.cautions)
        if report.pair is not None:
            yield from (text for text in same_cookie(seen, name, *report.pair) if text not in known)
    for folder in dict.fromkeys(str(server.chdir) for server in config.servers.values()):
        yield from clashes(folder)


def unlike(report: AppReport) -> Iterator[str]:
    """A preset that is none of those that the app looks like."""
    known = [one for one in report.likenesses if one.known]
    if report.preset not in ("custom", *(one.preset for one in known)) and known and report.given:
        found = f"affinity.preset is {report.preset}, but the app looks like {known[0].preset} ({known[0].because})"
        yield f"{found}: `{known[0].affinity}`"


def clashes(folder: str) -> Iterator[str]:
    """The app's packages whose names are those of ours."""
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for package in OURS:
        for path in (os.path.join(folder, package), os.path.join(folder, f"{package}.py")):
            if not os.path.exists(path) or os.path.realpath(path).startswith(os.path.realpath(home) + os.sep):
                continue
            if package in IMPORTED_BY_WORKERS:
                yield f"{path}: `import {package}` in a worker finds gym-supervise's package, not this one; rename it"
            else:
                yield f"{path}: gym-supervise has a package {package} too; workers find this one, others may not"


def _raise_problems(config: Config, reports: dict[str, AppReport]) -> None:
    wrong = [
        f"{config.place_of(('servers', name, 'affinity'))}: servers.{name}.affinity: "
        + no_affinity(server.workers, propose(reports[name].likenesses))
        for name, server in config.servers.items()
        if server.affinity is None and server.workers > 1
    ]
    wrong += [
        f"{config.place_of(('servers', name, 'affinity', report.key.split('.')[0].split('[')[0]))}: "
        f"servers.{name}.affinity.{report.key}: {report.text}"
        for name, report in reports.items()
        if report.problem == "affinity"
    ]
    if wrong:
        raise ConfigError(wrong)
    broken = [
        f"{config.place_of(('servers', name, 'app'))}: servers.{name}.app: {report.text}"
        for name, report in reports.items()
        if report.problem == "import"
    ]
    if broken:
        raise BootError("\n".join(broken))
