"""Takes over the calls with which a script has uvicorn serve its app.

    uvicorn.run(app, ...)     Server(Config(app, ...)).run()     await Server(Config(app, ...)).serve()

All three end in `Server.serve`, which is where a `Taker` is asked. uvicorn's own servers of processes (`workers=N`,
`reload=True`) are never started. A Config that the script makes sets up logging in its constructor, as always, with
what the taker says about it.
"""

from __future__ import annotations

import copy
import functools
import inspect
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import uvicorn
import uvicorn.config

AT_ONCE = ("log_config", "log_level", "access_log", "use_colors", "loop")
"""Options that have been used when a Config gets to a Server's `serve`."""

AGAIN = (
    "uvicorn is called again while its app is imported: the import string names the script itself; put the call below"
    " `if __name__ == '__main__':`"
)

RELOADING = ("reload", "reload_dirs", "reload_includes", "reload_excludes", "reload_delay")


@dataclass
class Call:
    """One call. `options` has what the script has said to uvicorn.Config, or has changed in it afterwards."""

    server: uvicorn.Server
    options: dict[str, Any]
    own_sockets: bool

    @property
    def config(self) -> uvicorn.Config:
        """The script's."""
        return self.server.config

    @property
    def in_thread(self) -> bool:
        """Whether it was made in another thread than the script's main one."""
        return threading.current_thread() is not threading.main_thread()


class Taker(Protocol):
    """Who is asked in uvicorn's place."""

    def is_own(self, server: uvicorn.Server) -> bool:
        """Whether a server is the taker's, and no script's: uvicorn serves it."""

    @property
    def listens(self) -> bool:
        """Whether a Config that is made now is the script's."""

    @property
    def loading(self) -> bool:
        """Whether the app of a call is being imported."""

    @property
    def configured(self) -> Mapping[str, Any]:
        """Uvicorn's options as the config has them: they come before the script's."""

    def logging_is_set_up(self) -> None:
        """A Config of the script's has done it."""

    async def take(self, call: Call) -> None:
        """Serve; return when the server has ended."""

    def refuse(self, text: str) -> BaseException:
        """What to raise for something that cannot be done, whose reason is `text`."""


@dataclass
class _Made:
    """How a Config was made."""

    given: dict[str, Any]
    attributes: dict[str, Any] = field(default_factory=dict)


def install(taker: Taker) -> None:
    """Put the taker in uvicorn's place, in this process and for good."""
    made: WeakKeyDictionary[uvicorn.Config, _Made] = WeakKeyDictionary()
    init, serve = uvicorn.Config.__init__, uvicorn.Server.serve
    uvicorn.Config.__init__ = _make_init(taker, init, made)  # type: ignore[method-assign]
    uvicorn.Server.run = _make_server_run(taker, uvicorn.Server.run)  # type: ignore[method-assign]
    uvicorn.Server.serve = _make_serve(taker, serve, made)  # type: ignore[method-assign]
    uvicorn.Config.bind_socket = _make_bind_socket(taker)  # type: ignore[method-assign]
    run = _make_run(uvicorn.run)
    uvicorn.run = sys.modules["uvicorn.main"].run = run  # type: ignore[attr-defined]  # the package's `main` is a command


def _make_init(
    taker: Taker, init: Callable[..., None], made: WeakKeyDictionary[uvicorn.Config, _Made]
) -> Callable[..., None]:
    signature = inspect.signature(init)
    pristine = copy.deepcopy(uvicorn.config.LOGGING_CONFIG)

    @functools.wraps(init)
    def __init__(self: uvicorn.Config, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - in its place
        bound = signature.bind(self, *args, **kwargs)
        if not taker.listens or self in made:
            bound.arguments.setdefault("log_config", None)  # logging is set up: not again for a second server
            init(*bound.args, **bound.kwargs)
            return
        given = {key: value for key, value in bound.arguments.items() if key != "self"}
        found = given.get("log_config", uvicorn.config.LOGGING_CONFIG)
        if found == pristine:  # a script that wants other lines changes uvicorn's own mapping, or gives its own
            given.pop("log_config", None)
        else:
            given["log_config"] = found
        for key in RELOADING:
            bound.arguments.pop(key, None)  # its constructor would look for files to watch
        before = {key: taker.configured[key] for key in AT_ONCE if key in taker.configured}
        bound.arguments |= {"log_config": given.get("log_config")} | before
        made[self] = _Made(given)
        init(*bound.args, **bound.kwargs)
        made[self].attributes = dict(vars(self))
        taker.logging_is_set_up()

    return __init__


def _make_serve(
    taker: Taker, serve: Callable[..., Any], made: WeakKeyDictionary[uvicorn.Config, _Made]
) -> Callable[..., Any]:
    parameters = inspect.signature(uvicorn.Config.__init__).parameters

    def options(config: uvicorn.Config) -> dict[str, Any]:
        how = made.get(config, _Made({}))
        now = {key: value for key, value in vars(config).items() if key in parameters}
        changed = {key: value for key, value in now.items() if value is not how.attributes.get(key, value)}
        return {**how.given, **changed}

    @functools.wraps(serve)
    async def take(self: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
        if taker.is_own(self):
            await serve(self, sockets=sockets)
        else:
            await taker.take(Call(self, options(self.config), bool(sockets)))

    return take


def _make_server_run(taker: Taker, run: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(run)
    def take(self: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
        if taker.loading:
            raise taker.refuse(AGAIN)
        run(self, sockets)

    return take


def _make_bind_socket(taker: Taker) -> Callable[..., Any]:
    def bind_socket(_self: uvicorn.Config) -> socket.socket:
        raise taker.refuse("Config.bind_socket() is called: the socket is gym-supervise's; leave the call out")

    return bind_socket


def _make_run(run: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(run)
    def take(app: Any, **options: Any) -> None:
        app_dir = options.pop("app_dir", None)
        if app_dir is not None:
            sys.path.insert(0, app_dir)
        uvicorn.Server(uvicorn.Config(app, **options)).run()

    return take
