"""`gym-supervise unit`: print systemd units for a config, or the template for all configs of a folder."""

from __future__ import annotations

import math
import os
import pwd
import re
import sys
from collections.abc import Iterable, Iterator, Mapping

import click

from ops import units
from supervisor.config import Config, load, locate
from supervisor.config.bind import WILDCARDS
from supervisor.errors import ConfigError
from supervisor.processes.lingering import is_system_user

USER = "gym-supervise"
HOMES = ("/home", "/root", "/run/user")
TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - compared with, not written to
EVERYWHERE = {*WILDCARDS, "localhost", "::1"}
"""Hosts that are there before the network is."""

KILL_SECONDS = 30
"""After graceful_seconds: what has to be killed, swept, and told."""

EPILOG = """\b
Examples:
  gym-supervise unit my-env.yaml
  gym-supervise unit my-env.yaml --user me --writable /srv/results
  gym-supervise unit my-env.yaml --socket 127.0.0.1:8000
  gym-supervise unit --template > /etc/systemd/system/gym-supervise@.service

\b
The first line says which file it is for. Then:
  systemctl daemon-reload && systemctl enable --now gym-supervise-my-env.service
--socket is for `bind: systemd:NAME`: clients wait in the socket while the service restarts.
"""


@click.command("unit", epilog=EPILOG)
@click.argument("config", type=click.Path(), required=False)
@click.option("--user", help="Who runs it. Default: you, or gym-supervise when you are root.")
@click.option("--writable", type=click.Path(), multiple=True, metavar="FOLDER", help="What the app writes; repeatable.")
@click.option("--socket", metavar="ADDRESS", help="Print the socket unit instead: [HOST:]PORT or /PATH.")
@click.option("--bind", metavar="NAME", help="Which `systemd:NAME` the socket is for, when there are several.")
@click.option("--template", is_flag=True, help="Print gym-supervise@.service, for /etc/gym-supervise/*.yaml.")
def command(
    config: str | None,
    *,
    user: str | None,
    writable: tuple[str, ...],
    socket: str | None,
    bind: str | None,
    template: bool,
) -> int:
    """Print a systemd unit for the service of CONFIG."""
    runs_as = user or (pwd.getpwuid(os.getuid()).pw_name if os.getuid() else USER)
    if template:
        if config is not None or socket is not None or writable or bind:
            raise click.UsageError("--template takes --user only")
        print(units.service(units.template(own_command(), runs_as)), end="")
        return 0
    if config is None:
        raise click.UsageError("Missing argument 'CONFIG'; or --template")
    place = locate(config)
    environment = Environment(place.name)
    loaded = load(config, environment)
    if socket is not None:
        print(units.socket(socket_plan(loaded, socket, bind)), end="")
        return 0
    for line in notes(loaded, runs_as):
        print(f"gym-supervise: {line}", file=sys.stderr)
    try:
        text = units.service(service_plan(loaded, runs_as, writable, environment.asked))
    except ValueError as error:
        raise ConfigError([f"{config}: found {error}, expected plain paths"]) from None
    print(text, end="")
    return 0


class Environment(Mapping[str, str]):
    """This process's environment with what systemd will add, which remembers what a config takes from it.

    asked   the names, but for those that systemd sets
    """

    def __init__(self, name: str) -> None:
        self._added = {
            "RUNTIME_DIRECTORY": f"/run/gym-supervise/{name}",
            "STATE_DIRECTORY": f"/var/lib/gym-supervise/{name}",
        }
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        """Also notes that it was asked for."""
        if name in self._added:
            return self._added[name]
        value = os.environ[name]
        self.asked.add(name)
        return value

    def __contains__(self, name: object) -> bool:
        """Without noting it."""
        return name in self._added or name in os.environ

    def __iter__(self) -> Iterator[str]:
        """All names."""
        return iter({**os.environ, **self._added})

    def __len__(self) -> int:
        """How many names."""
        return len({**os.environ, **self._added})


def own_command() -> tuple[str, ...]:
    """How this command is called from outside any shell."""
    script = os.path.join(sys.prefix, "bin", "gym-supervise")
    return (script,) if os.access(script, os.X_OK) else (sys.executable, "-m", "gym_supervise")


def service_plan(config: Config, user: str, writable: Iterable[str], asked: Iterable[str]) -> units.ServicePlan:
    """What the service unit of a config has to say."""
    assert config.source is not None
    binds = [server.bind for server in config.servers.values()]
    runtime, made = str(config.runtime_dir), str(config.runtime_dir).removeprefix("/run/")
    folders = [os.path.dirname(bind.path) for bind in binds if bind.kind == "unix"]
    writes = [os.path.abspath(folder) for folder in writable]
    if not runtime.startswith("/run/"):
        folders.append(runtime if os.path.isdir(runtime) else os.path.dirname(runtime))
    writes += [folder for folder in folders if not _below(folder, (runtime,)) or folder == runtime]
    reads = [str(config.source), *(str(server.chdir) for server in config.servers.values()), *_ours()]
    reads += [os.path.dirname(server.script.script) for server in config.servers.values() if server.script]
    tcp = [bind for bind in binds if bind.kind == "tcp"]
    names = sorted(asked)
    shared = any(_below(path, TEMPORARY) for path in (*reads, *writes))
    return units.ServicePlan(
        name=config.name,
        user=user,
        command=own_command(),
        config=str(config.source),
        runtime_directory=made if runtime.startswith("/run/") else None,
        state_directory=f"gym-supervise/{config.name}",
        environment_file=f"/etc/gym-supervise/{config.name}.env" if names else None,
        environment=tuple(names),
        sockets=tuple(socket_unit(config, name) for name in bind_names(config)),
        writable=tuple(dict.fromkeys([*writes, *(TEMPORARY if shared else ())])),
        home_is_read=any(_below(path, HOMES) for path in (*reads, *writes)),
        tmp_is_shared=shared,
        low_port=any(0 < bind.port < 1024 for bind in tcp),
        wait_online=not all(bind.host in EVERYWHERE or bind.host.startswith("127.") for bind in tcp),
        stop_seconds=math.ceil(max(server.timeouts.graceful_seconds for server in config.servers.values()))
        + KILL_SECONDS,
        file=service_unit(config),
    )


def socket_plan(config: Config, listen: str, bind: str | None) -> units.SocketPlan:
    """What a socket unit of a config has to say."""
    names = bind_names(config)
    if not names:
        do = "write `bind: systemd:main` in the config"
        raise ConfigError(
            [f"{config.place_of(('servers',))}: found no server with a socket from systemd, expected one; {do}"]
        )
    if bind is None and len(names) > 1:
        raise click.UsageError(f"the config has several sockets from systemd: say --bind and one of {', '.join(names)}")
    name = names[0] if bind is None else bind
    if name not in names:
        raise click.UsageError(f"--bind: found {name!r}, expected one of {', '.join(names)}")
    if not re.fullmatch(r"/\S+|(\S+:)?[0-9]{1,5}", listen):
        raise click.UsageError(f"--socket: found {listen!r}, expected a port, HOST:PORT with an IP address, or /PATH")
    return units.SocketPlan(config.name, name, listen, service_unit(config), socket_unit(config, name))


def bind_names(config: Config) -> list[str]:
    """The NAMEs of all `bind: systemd:NAME`."""
    return list(dict.fromkeys(server.bind.name for server in config.servers.values() if server.bind.kind == "systemd"))


def service_unit(config: Config) -> str:
    """The service unit's name."""
    return f"gym-supervise-{config.name}.service"


def socket_unit(config: Config, bind_name: str) -> str:
    """A socket unit's name: the service's when there is one only."""
    part = "" if len(bind_names(config)) == 1 else "-" + re.sub(r"[^A-Za-z0-9_.-]", "-", bind_name)
    return f"gym-supervise-{config.name}{part}.socket"


def notes(config: Config, user: str) -> Iterator[str]:
    """What is right in the unit and will not work yet."""
    for name, server in config.servers.items():
        if "bind" in server.open_to_script:
            yield f"{name}: where it listens is its script's affair; give `bind`, so that the unit can allow for it"
        if server.bind.kind == "fd":
            yield f"{name}: systemd passes no {server.bind} by its number; write `bind: systemd:NAME`"
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        yield f"there is no user {user} yet: useradd --system --no-create-home {user}"
        return
    if not is_system_user(uid):
        yield (
            f"user {user} is a person's: a log-out would remove the service's shared memory; "
            f"loginctl enable-linger {user}, or give --user a system user"
        )


def _ours() -> list[str]:
    """Where the interpreter and this package are; a virtual environment's may be in two places."""
    return [sys.prefix, sys.base_prefix, os.path.realpath(sys.executable), __file__]


def _below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)
