"""Completes a config with what its scripts say: where they listen, with how many workers, and what they look like."""

from __future__ import annotations

import functools
import itertools
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass

from supervisor.config import Bind, Config, LogConfig, ServerConfig
from supervisor.config.checks import no_affinity
from supervisor.errors import BootError, ConfigError, shape
from supervisor.notify import EXTEND_SECONDS, Notifier
from supervisor.processes import aside
from supervisor.scripts.proposing import propose

logger = logging.getLogger("gym_supervise.config")


@dataclass(frozen=True)
class Answer:
    """What a script has said: why it cannot be served, or where it is. `proposal`: what to do about its affinity."""

    problem: str = ""
    bind: str = ""
    workers: int = 1
    proposal: str = ""


def complete(config: Config, options: Mapping[str, str] | None = None) -> Config:
    """The config with the `bind` and `workers` of its scripts where it has none of its own.

    Args:
        config: as loaded, or as options have it.
        options: for a config without a file, how its options are called: `workers`, `affinity`.

    Raises:
        BootError: a script did not come to a call that can be served.
        ConfigError: several workers and no affinity, or two servers with one address.

    """
    servers = {name: _complete(config, name, server, options) for name, server in config.servers.items()}
    problems = []
    for (one, first), (two, second) in itertools.combinations(servers.items(), 2):
        if (first.from_script | second.from_script) and first.bind.clashes_with(second.bind):
            found = f"{second.bind}, which cannot be had beside the {first.bind} of server {one}"
            text = shape("", found, "an address of its own for each server", "give `bind`").removeprefix(": ")
            problems.append(f"{config.place_of(('servers', two, 'app'))}: servers.{two}.bind: {text}")
    if problems:
        raise ConfigError(problems)
    return config.with_servers(servers)


def keep(current: Config, new: Config) -> Config:
    """A config that was read again, with what its scripts have said at the start: no script is asked twice."""
    servers = {}
    for name, server in new.servers.items():
        before = current.servers.get(name)
        if before is not None and server.open_to_script:
            servers[name] = server.with_script(bind=before.bind, workers=before.workers)
        else:
            servers[name] = server
    return new.with_servers(servers)


def _complete(config: Config, name: str, server: ServerConfig, options: Mapping[str, str] | None) -> ServerConfig:
    if server.script is None or not (server.open_to_script or (server.affinity is None and server.workers > 1)):
        return server
    answer = ask(name, server, config.log, as_options=options is not None)
    if answer.problem:
        raise BootError(answer.problem.rstrip())
    server = server.with_script(bind=Bind.parse(answer.bind), workers=answer.workers)
    if server.affinity is None and server.workers > 1:
        place = f"{config.place_of(('servers', name, 'affinity'))}: servers.{name}.affinity"
        place = options["affinity"] if options else place
        raise ConfigError([f"{place}: {no_affinity(server.workers, answer.proposal)}"])
    return server


def ask(name: str, server: ServerConfig, log: LogConfig, *, as_options: bool = False) -> Answer:
    """Run a server's script up to its call of uvicorn, in a child process, for at most its boot_seconds."""
    logger.info("%s: %s is run up to its call of uvicorn: %s", name, server.app, _why(server))
    _tell_manager(name, server)
    function = functools.partial(_answer, name=name, server=server, log=log, as_options=as_options)
    seconds, folder = server.timeouts.boot_seconds, str(server.chdir)
    try:
        answer: Answer = aside.ask(function, seconds=seconds, env=server.env, folder=folder)
    except aside.TooLate as error:
        return Answer(f"{server.app} did not come to a call of uvicorn {error}")
    except aside.NoReport as error:
        return Answer(f"{server.app}: its process {error} before it called uvicorn")
    return answer


def _tell_manager(name: str, server: ServerConfig) -> None:
    """A service manager is to wait as long as this may take. The supervisor, which tells it all else, comes later."""
    notifier = Notifier(os.environ.get("NOTIFY_SOCKET", ""))
    seconds = server.timeouts.boot_seconds + EXTEND_SECONDS
    notifier.send(
        f"STATUS={name}: its script is run to learn where it serves", f"EXTEND_TIMEOUT_USEC={seconds * 1e6:.0f}"
    )
    notifier.close()


def _why(server: ServerConfig) -> str:
    missing = sorted(server.open_to_script)
    return f"nothing else says {' and '.join(missing)}" if missing else "there is no affinity"


def _answer(tell: aside.Tell[Answer], *, name: str, server: ServerConfig, log: LogConfig, as_options: bool) -> None:
    from server_adapters.likeness import likenesses
    from supervisor.logs import lines as logs
    from supervisor.scripts.calls import Call
    from supervisor.scripts.probe import load_called, run_to_call
    from supervisor.scripts.said import said

    logs.configure(log, role=f"{name}.probe")

    def on_call(call: Call) -> None:
        found = said(call, server)
        workers = server.workers if "workers" not in server.open_to_script else found.workers
        proposal = ""
        if server.affinity is None and workers > 1:
            app, _ = load_called(call, server)
            proposal = propose(likenesses(app), as_options=as_options)
        tell(Answer(bind=str(found.bind), workers=found.workers, proposal=proposal))

    run_to_call(server, on_call, lambda text: tell(Answer(text)))
