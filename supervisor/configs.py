"""The config that is in force, and the one that a reload has read and is trying out.

What the running service is built on cannot be changed by a reload: sockets, shared memory, and how sessions are found
(two generations of workers serve side by side, and must agree on whose a session is). A config that wants to is
refused as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator

from supervisor.config import Config, load
from supervisor.core import events
from supervisor.core.plan import ServerPlan
from supervisor.errors import ConfigError
from supervisor.scripts.asking import keep

FIXED = ("bind", "affinity")


def plan(name: str, config: Config) -> ServerPlan:
    """What the fleet has to know of one server."""
    server = config.servers[name]
    return ServerPlan(
        name,
        server.workers,
        boot_tries=server.boot_tries,
        boot_seconds=server.timeouts.boot_seconds,
        graceful_seconds=server.timeouts.graceful_seconds,
        drain_seconds=server.timeouts.drain_seconds,
        may_share=server.affinity is not None,
    )


def fixed_differences(old: Config, new: Config) -> Iterator[str]:
    """What a new config would change that cannot be changed while the service runs, one sentence each."""
    if old.name != new.name:
        yield f"name: found {new.name}, expected {old.name}"
    if old.runtime_dir != new.runtime_dir:
        yield f"runtime_dir: found {new.runtime_dir}, expected {old.runtime_dir}"
    for name in old.servers.keys() - new.servers.keys():
        yield f"servers.{name}: found nothing, expected the server that runs"
    for name in new.servers.keys() - old.servers.keys():
        yield f"servers.{name}: found a server that does not run yet"
    for name in old.servers.keys() & new.servers.keys():
        one, two = old.servers[name], new.servers[name]
        if one.bind != two.bind:
            yield f"servers.{name}.bind: found {two.bind}, expected {one.bind}"
        if one.claims.max_sessions != two.claims.max_sessions:
            found, expected = two.claims.max_sessions, one.claims.max_sessions
            yield f"servers.{name}.claims.max_sessions: found {found}, expected {expected}"
        before = {} if one.affinity is None else one.affinity.options()
        after = {} if two.affinity is None else two.affinity.options()
        for key in sorted(before.keys() | after.keys()):
            if before.get(key) != after.get(key):  # values are not shown: secrets are among them
                yield f"servers.{name}.affinity.{key}: found another value than the running one"


class Configs:
    """`current` is in force; `candidate` is what a reload has read, None while there is none."""

    def __init__(self, config: Config) -> None:
        self.current = config
        self.candidate: Config | None = None

    def chosen(self, *, candidate: bool) -> Config:
        """One of the two."""
        return self.candidate if candidate and self.candidate is not None else self.current

    def read(self) -> events.ConfigRead | events.ConfigRefused:
        """Read the file again; what it says is the candidate then, unless it is refused."""
        try:
            config = self._load()
        except ConfigError as error:
            return events.ConfigRefused("; ".join(error.problems))
        self.candidate = config
        return events.ConfigRead({name: plan(name, config) for name in self.current.servers})

    def problem(self) -> str | None:
        """Why a reload of what the file says now would be refused, or None."""
        try:
            self._load()
        except ConfigError as error:
            return "; ".join(error.problems)
        return None

    def commit(self) -> Config:
        """The candidate is in force from here on."""
        assert self.candidate is not None
        self.current, self.candidate = self.candidate, None
        return self.current

    def drop(self) -> None:
        """Forget the candidate."""
        self.candidate = None

    def _load(self) -> Config:
        if self.current.from_options:
            return self.current  # the script itself is what is read again
        if self.current.source is None:
            raise ConfigError(["the service was not started from a file, so there is none to read again"])
        config = keep(self.current, load(self.current.source))
        if fixed := list(fixed_differences(self.current, config)):
            raise ConfigError([*fixed, "none of this can be changed while the service runs: stop and start it"])
        return config
