"""`serve.run(config)`: the guardian, and below it the supervisor with everything that it sets up and takes down."""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from shmclaims import remove_stale
from supervisor.config import Config
from supervisor.configs import Configs, plan
from supervisor.core import effects
from supervisor.core.backoff import BackoffPolicy
from supervisor.core.events import Worker
from supervisor.core.fleet import Fleet
from supervisor.errors import SupervisorError
from supervisor.listeners import Listeners, open_listeners
from supervisor.logs import lines as logs
from supervisor.loop import Loop
from supervisor.notify import Announcer, Notifier, tell_failure, watchdog_seconds
from supervisor.processes.guardian import guard
from supervisor.processes.linux import become_subreaper, raise_descriptor_limit
from supervisor.processes.reaping import Reaper
from supervisor.processes.signals import Signals
from supervisor.processes.spawn import Child, WorkerMain, serve_app, spawn
from supervisor.processes.worker_spec import WorkerSpec
from supervisor.runtime_dir import RuntimeDir, is_named
from supervisor.segments import Segments

logger = logging.getLogger("gym_supervise.supervisor")


def run(config: Config, *, main: WorkerMain = serve_app, policy: BackoffPolicy | None = None) -> int:
    """Serve a config in the foreground until a signal, a command or a hopeless app ends it.

    Args:
        config: from `supervisor.config.load`.
        main: what each worker runs.
        policy: pauses between a death and the next start.

    Returns:
        the exit status; what went wrong is in the log

    """
    logs.configure(config.log, role="guardian")
    return guard(lambda guardian: supervise(config, guardian, main, policy or BackoffPolicy()))


def supervise(config: Config, guardian: int, main: WorkerMain, policy: BackoffPolicy) -> int:
    """The supervisor's life, in a process of its own below `guardian` (a pid). Returns the exit status."""
    logs.configure(config.log, role="supervisor")
    notifier = Notifier(os.environ.get("NOTIFY_SOCKET", ""))
    try:
        with ExitStack() as stack:
            return _set_up(config, guardian, main, policy, notifier, stack).run()
    except SupervisorError as error:
        failure = error
    tell_failure(notifier, str(failure))
    for line in str(failure).splitlines():
        logger.error("%s", line)
    return failure.exit_code


def _set_up(
    config: Config, guardian: int, main: WorkerMain, policy: BackoffPolicy, notifier: Notifier, stack: ExitStack
) -> Loop:
    """Everything before the first worker; what is done here is undone in the opposite order."""
    if main is serve_app:
        # When the package is upgraded under a running service, a later worker must not get modules of two versions.
        importlib.import_module("supervisor.worker.main")
    become_subreaper()
    raise_descriptor_limit()
    signals = Signals(guardian)
    stack.callback(signals.close)
    watch = os.pidfd_open(guardian) if os.getppid() == guardian else _readable()
    stack.callback(os.close, watch)
    runtime = RuntimeDir(str(config.runtime_dir))
    stack.callback(runtime.close)
    runtime.check_names(config.servers)
    if removed := remove_stale(keep=is_named):
        logger.info("removed what a crashed supervisor left in /dev/shm: %s", ", ".join(removed))
    listeners: dict[str, Listeners] = {}
    for name, server in config.servers.items():
        listeners[name] = open_listeners(server.bind, owners=frozenset({guardian}))
        stack.callback(listeners[name].close)
    identity = {"pid": os.getpid(), "guardian": guardian, "started_at": time.time(), "version": _version()}
    segments = _make_segments(config, listeners, identity, stack)
    fleet = Fleet([plan(name, config) for name in config.servers], policy)
    watchdog = watchdog_seconds(os.environ, frozenset({guardian, os.getpid()}))
    configs = Configs(config)
    loop = Loop(
        fleet=fleet,
        segments=segments,
        reaper=Reaper(segments),
        signals=signals,
        runtime=runtime,
        listeners=listeners,
        configs=configs,
        spawn=_spawner(configs, segments, listeners, main),
        guardian=watch,
        identity=identity,
        announcer=Announcer(notifier, fleet, segments.open_sessions, watchdog_seconds=watchdog),
    )
    stack.callback(loop.close)
    source = str(config.source) if config.source else None
    runtime.write_state({**identity, "segments": segments.names(), "config": source})
    for name, server in config.servers.items():
        logger.info("%s: serving on %s with %d workers", name, listeners[name].address, server.workers)
    return loop


def _make_segments(
    config: Config, listeners: Mapping[str, Listeners], identity: Mapping[str, Any], stack: ExitStack
) -> Segments:
    segments = Segments()
    stack.callback(segments.close)
    for name, server in config.servers.items():
        info = {
            "server": name,
            "bind": listeners[name].address,
            "version": identity["version"],
            "runtime_dir": str(config.runtime_dir),
            "supervisor_pid": identity["pid"],
            "started_at": identity["started_at"],
            "workers": server.workers,
        }
        segments.create(name, server, info)
    return segments


def _spawner(
    configs: Configs, segments: Segments, listeners: Mapping[str, Listeners], main: WorkerMain
) -> Callable[[Worker, effects.Spawn], Child]:
    def spawn_worker(worker: Worker, wanted: effects.Spawn) -> Child:
        config = configs.chosen(candidate=wanted.candidate)
        server = config.servers[worker.server]

        def make_spec(link: socket.socket) -> WorkerSpec:
            return WorkerSpec(
                config=config,
                server=server,
                name=worker.server,
                index=worker.index,
                incarnation=worker.incarnation,
                segment=segments.segment(worker.server),
                listeners=list(listeners[worker.server].sockets),
                link=link,
                runtime_dir=str(config.runtime_dir),
                workers=server.workers,
                shared=wanted.shared,
            )

        return spawn(make_spec, main)

    return spawn_worker


def _readable() -> int:
    """In place of the pidfd of a guardian that is gone already: something that is always readable."""
    readable, writable = os.pipe()
    os.close(writable)
    return readable


def _version() -> str:
    try:
        return importlib.metadata.version("gym-supervise")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
