"""Loading a server's app, as a plain uvicorn would, without serving it."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping
from typing import Any

import uvicorn

from supervisor.config import ServerConfig

OURS = ("supervisor.", "uvicorn.", "importlib.")


class AppError(Exception):
    """The app cannot be had. The message is for the person who wrote the config; the cause has the traceback."""


def load_app(server: ServerConfig) -> tuple[Any, Any]:
    """Import a server's app. Returns the object itself and the ASGI 3 app that uvicorn makes of it.

    The server's `chdir` becomes the working folder and comes first on sys.path, its `env` goes into the environment:
    both for this process only.

    Raises AppError when the import fails or finds no app; what the app itself raises is the error's cause.
    """
    os.environ.update(server.env)
    os.chdir(server.chdir)
    folder = str(server.chdir)
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    assert isinstance(server.app, str)
    return make_app(server.app, server.uvicorn, factory=server.factory)


def make_app(
    app: Any, uvicorn_options: Mapping[str, Any], *, factory: bool, do: str = "set chdir to the folder that has it"
) -> tuple[Any, Any]:
    """The same of an app, or of an import string, whose place is on sys.path already. `do` is for one that is not."""
    shown = app if isinstance(app, str) else repr(app)
    if isinstance(app, str):
        app = _import(app, do)
    if factory:
        if not callable(app):
            raise AppError(f"app: found {shown}, which cannot be called; expected a function that returns the app")
        app = app()
    options = {key: uvicorn_options[key] for key in ("interface", "ws", "http", "loop") if key in uvicorn_options}
    inner = uvicorn.Config(app, proxy_headers=False, log_config=None, **options)
    inner.load()  # an interface other than ASGI 3 is adapted here, below the router
    return app, inner.loaded_app


def app_traceback(error: BaseException) -> str:
    """The error's traceback from the app's first line on: what lies above is ours and tells its author nothing."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None and at.tb_frame.f_globals.get("__name__", "").startswith(OURS):
        at = at.tb_next
    return "".join(traceback.format_exception(type(error), error, at))


def _import(reference: str, do: str) -> Any:
    module, _, attribute = reference.partition(":")
    try:
        found: Any = __import__(module, fromlist=["_"])
    except ModuleNotFoundError as missing:
        if missing.name is not None and (module == missing.name or module.startswith(missing.name + ".")):
            place = f"{os.getcwd()} or on sys.path"
            raise AppError(
                f"app: found {reference!r}, but there is no module {missing.name!r} in {place}; {do}"
            ) from missing
        raise
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            names = sorted(public for public in dir(found) if not public.startswith("_"))
            raise AppError(
                f"app: found {reference!r}, but {module} has no {attribute!r};"
                f" it has {', '.join(names[:12]) or 'nothing'}"
            ) from None
    return found
