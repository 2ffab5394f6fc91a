"""What `check` learns of a server's app: import it in a child process, as a worker would, and look at it from outside.

The child writes no bytecode, its stdout goes to stderr, and its process group is killed at the end: importing an app
must leave nothing behind. Its lifespan is not run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import multiprocess

from supervisor.config import ServerConfig
from supervisor.processes.linux import die_with_parent


@dataclass
class AppReport:
    """One app.

    problem    nothing, or what is wrong: `affinity` (a config error, below `key`) or `import`
    cookie     the session cookie's name, where the preset has one
    pair       cookie and secret, to be compared with other servers', never shown
    routes     (methods, path, what it does to a session); None: the app does not tell its routes
    """

    problem: Literal["", "affinity", "import"] = ""
    text: str = ""
    key: str = ""
    preset: str = "none"
    cookie: str | None = None
    pair: tuple[str, str] | None = None
    life: str = ""
    routes: list[tuple[str, str, str]] | None = None
    warnings: list[str] = field(default_factory=list)


def inspect(name: str, server: ServerConfig) -> AppReport:
    """Import the app of a server in a child process, for at most its boot_seconds."""
    fork = multiprocess.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    child = fork.Process(target=_child, args=(sender, name, server, os.getpid()))
    child.start()
    sender.close()
    try:
        return _received(receiver, child, server)
    finally:
        receiver.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.kill()
        child.join()


def _received(receiver: Any, child: Any, server: ServerConfig) -> AppReport:
    seconds = server.timeouts.boot_seconds
    if not receiver.poll(seconds):
        return AppReport("import", f"{server.app} was not imported within boot_seconds, which is {seconds:g}")
    try:
        report: AppReport = receiver.recv()
    except EOFError:
        child.join()
        return AppReport("import", f"{server.app}: the process that imported it ended with {child.exitcode}")
    return report


def _child(sender: Any, name: str, server: ServerConfig, parent: int) -> None:
    die_with_parent(parent)
    os.setpgid(0, 0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.dont_write_bytecode = True
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        report = _look(name, server)
    except BaseException as error:
        report = AppReport("import", _reason(error))
    sender.send(report)
    sender.close()
    sys.stdout.flush()
    os._exit(0)


def _reason(error: BaseException) -> str:
    from supervisor.worker.apps import AppError, app_traceback

    if isinstance(error, AppError):
        return str(error).removeprefix("app: ")
    return f"found an app that cannot be imported; its own error:\n{app_traceback(error).rstrip()}"


def _look(name: str, server: ServerConfig) -> AppReport:
    from server_adapters import registry
    from server_adapters.discovery import session_cookie_settings
    from server_adapters.errors import AffinityError
    from server_adapters.registry import COOKIE_PRESETS
    from supervisor.worker.apps import load_app

    app, _ = load_app(server)
    report = AppReport()
    options = {"preset": "none"} if server.affinity is None else server.affinity.options()
    report.preset = options["preset"]
    try:
        adapter = registry.build(options, app, server=name)
        if report.preset in COOKIE_PRESETS:
            settings = session_cookie_settings(options, app)
            report.cookie, report.pair = settings.name, (settings.name, settings.secret)
    except AffinityError as error:
        report.problem, report.text, report.key = "affinity", str(error), error.key
        return report
    report.life = _life(adapter) if adapter.has_sessions else ""
    routes = getattr(app, "routes", None)
    if isinstance(routes, list):
        report.routes = list(_routes(adapter, routes, ""))
        report.warnings = [*_unknown_routes(options, routes), *_no_start(adapter, report.routes)]
    return report


def _life(adapter: Any) -> str:
    life = adapter.life
    if life.explicit:
        return f"a claim ends {life.window_seconds:.0f} s after the last request of an ended session"
    return f"a claim ends {life.idle_seconds:.0f} s after the session's last request"


def _routes(adapter: Any, routes: list[Any], prefix: str) -> Iterator[tuple[str, str, str]]:
    for route in routes:
        path = prefix + str(getattr(route, "path", ""))
        inner = getattr(route, "routes", None)
        methods = getattr(route, "methods", None)
        if isinstance(inner, list) and methods is None:
            yield from _routes(adapter, inner, path)
        elif methods:
            for method in sorted(set(methods) - ({"HEAD"} if "GET" in methods else set())):
                yield method, path, _role(adapter, method, path)
        else:
            websocket = "WebSocket" in type(route).__name__
            yield "WEBSOCKET" if websocket else "*", path, ""


def _role(adapter: Any, method: str, path: str) -> str:
    from server_adapters.heads import RequestHead

    reading = adapter.read(RequestHead(method, path, path.encode(), b"", ()))
    roles = {
        "starts a session": reading.starts,
        "ends its session": reading.ends,
        "may end its session, as its reply says": reading.wants_reply_body,
        "keeps no state": reading.stateless and adapter.has_sessions,
    }
    return ", ".join(text for text, holds in roles.items() if holds)


def _unknown_routes(options: dict[str, Any], routes: list[Any]) -> Iterator[str]:
    from starlette.routing import Match

    for key in ("session_starts", "session_ends"):
        for text in options.get(key, ()):
            named, _, path = str(text).rpartition(" ")
            method = named.split(",")[0].strip() or "POST"
            scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
            with contextlib.suppress(Exception):  # a route class of the app's own
                if (
                    "{" not in path
                    and "*" not in text
                    and all(route.matches(scope)[0] is not Match.FULL for route in routes)
                ):
                    yield f"{key}: the app has no route for {method} {path}"


def _no_start(adapter: Any, routes: list[tuple[str, str, str]]) -> Iterator[str]:
    if adapter.name == "gym-resources" and not any("starts" in role for _, _, role in routes):
        yield "the app has no route that starts a session; is it a resources server?"
