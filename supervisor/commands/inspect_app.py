"""What `check` learns of a server's app: import it in a child process, as a worker would, and look at it from outside.

A script is run up to its call of uvicorn. Its lifespan is not run, and nothing is left behind.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from server_adapters.likeness import Likeness
from supervisor.config import ServerConfig
from supervisor.processes import aside


@dataclass
class AppReport:
    """One app.

    problem    nothing, or what is wrong: `affinity` (a config error, below `key`) or `import`
    given      whether the config names the preset
    cookie     the session cookie's name, where the preset has one
    pair       cookie and secret, to be compared with other servers', never shown
    routes     (methods, path, what it does to a session); None: the app does not tell its routes
    likenesses presets that would suit it, the likeliest first
    cautions   what goes wrong on several workers, whatever the preset
    bind       where a script wants to serve, with how many `workers`
    """

    problem: Literal["", "affinity", "import"] = ""
    text: str = ""
    key: str = ""
    preset: str = "none"
    given: bool = False
    cookie: str | None = None
    pair: tuple[str, str] | None = None
    life: str = ""
    routes: list[tuple[str, str, str]] | None = None
    warnings: list[str] = field(default_factory=list)
    likenesses: list[Likeness] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)
    bind: str = ""
    workers: int = 1


def inspect(name: str, server: ServerConfig) -> AppReport:
    """Import the app of a server in a child process, or run its script, for at most its boot_seconds."""
    verb, did = ("run up to its call of uvicorn", "ran") if server.script else ("imported", "imported")
    function = functools.partial(_look_and_tell, name=name, server=server)
    try:
        report: AppReport = aside.ask(
            function, seconds=server.timeouts.boot_seconds, env=server.env, folder=str(server.chdir)
        )
    except aside.TooLate as error:
        return AppReport("import", f"{server.app} was not {verb} {error}")
    except aside.NoReport as error:
        return AppReport("import", f"{server.app}: the process that {did} it {error}")
    return report


def _look_and_tell(tell: aside.Tell[AppReport], *, name: str, server: ServerConfig) -> None:
    if server.script is not None:
        _run_script(tell, name, server)
        return
    from supervisor.worker.apps import load_app

    try:
        app, _ = load_app(server)
        report = _look(app, name, server)
    except BaseException as error:
        report = AppReport("import", _reason(error))
    tell(report)


def _run_script(tell: aside.Tell[AppReport], name: str, server: ServerConfig) -> None:
    from supervisor.scripts.calls import Call
    from supervisor.scripts.probe import load_called, run_to_call
    from supervisor.scripts.said import said

    def on_call(call: Call) -> None:
        found = said(call, server)
        app, _ = load_called(call, server)
        report = _look(app, name, server)
        report.bind, report.workers = str(found.bind), found.workers
        tell(report)

    run_to_call(server, on_call, lambda text: tell(AppReport("import", text.rstrip())))


def _reason(error: BaseException) -> str:
    from supervisor.worker.apps import AppError, app_traceback

    if isinstance(error, AppError):
        return str(error).removeprefix("app: ")
    return f"found an app that cannot be imported; its own error:\n{app_traceback(error).rstrip()}"


def _look(app: Any, name: str, server: ServerConfig) -> AppReport:
    from server_adapters import likeness, registry
    from server_adapters.discovery import session_cookie_settings
    from server_adapters.errors import AffinityError
    from server_adapters.registry import COOKIE_PRESETS

    report = AppReport(likenesses=likeness.likenesses(app), cautions=likeness.cautions(app))
    options = {"preset": "none"} if server.affinity is None else server.affinity.options()
    report.preset, report.given = options["preset"], server.affinity is not None
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
