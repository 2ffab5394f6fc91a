"""The `uvicorn:` keys: what uvicorn.Config takes, without what would break the supervision."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import os
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from supervisor.config.errors import describe, shape_tail

_BIND = "say it with the server's own `bind`"
_APP = "say it with the server's own `app` and `factory`"
_RELOAD = "a reload ends sessions; there is none while code is edited"

REFUSED: dict[str, str] = {
    "workers": "say it with the server's own `workers`",
    "reload": _RELOAD,
    "reload_dirs": _RELOAD,
    "reload_delay": _RELOAD,
    "reload_includes": _RELOAD,
    "reload_excludes": _RELOAD,
    "host": _BIND,
    "port": _BIND,
    "uds": _BIND,
    "fd": _BIND,
    "app": _APP,
    "factory": _APP,
    "limit_max_requests": "uvicorn would end the worker by itself, and its sessions with it",
    "limit_max_requests_jitter": "it belongs to limit_max_requests, with which uvicorn ends a worker and its sessions",
    "callback_notify": "it is a function, and the supervisor watches the workers itself",
    "env_file": "say it with the server's own `env`",
}


def problem(name: str, value: Any, folder: str) -> str | None:
    """What is wrong with one key below `uvicorn`, or None. `folder` is where its workers will be."""
    import uvicorn

    parameters = inspect.signature(uvicorn.Config).parameters
    if name in REFUSED:
        return shape_tail("a key that is refused here", "none of uvicorn's own process settings", REFUSED[name])
    if name not in parameters:
        close = difflib.get_close_matches(name, parameters, n=1, cutoff=0.6)
        expected = f"a parameter of uvicorn.Config (uvicorn {uvicorn.__version__})"
        return shape_tail("an unknown key", expected, f"did you mean {close[0]}?" if close else "")
    if isinstance(value, str) and name == "ssl_version":
        return shape_tail(describe(value), "a whole number")
    if name == "log_config" and value is not None:
        return _wrong_log_config(value, folder)
    return _wrong_type(name, value)


def http2_problem(options: Mapping[str, Any]) -> str | None:
    """HTTP/2 needs another of uvicorn's protocols."""
    if options.get("http2") is not True:
        return None
    if options.get("http") != "zttp":
        return shape_tail("true", "`http: zttp` beside it", "uvicorn has HTTP/2 in that protocol alone")
    if importlib.util.find_spec("zttp") is None:
        return shape_tail("true", "the package zttp to be installed", "pip install zttp")
    return None


def _wrong_log_config(value: Any, folder: str) -> str | None:
    """Its content is judged where it is applied, in a worker: to try it here would open its files."""
    if isinstance(value, str) and not os.path.isfile(os.path.join(folder, value)):
        return shape_tail(f"{value!r}, which is no file", f"the path of one, from {folder}")
    if not isinstance(value, dict | str):
        return shape_tail(describe(value), "a mapping as logging.config.dictConfig takes it, or the path of a file")
    return None


def _wrong_type(name: str, value: Any) -> str | None:
    import uvicorn

    try:
        annotation = typing.get_type_hints(uvicorn.Config.__init__).get(name, Any)
        adapter = TypeAdapter[Any](annotation, config=ConfigDict(strict=True, arbitrary_types_allowed=True))
    except Exception:
        return None  # a type of a later uvicorn that is no pydantic schema: uvicorn itself will judge
    if name == "headers" and isinstance(value, list):
        value = [tuple(pair) if isinstance(pair, list) else pair for pair in value]
    try:
        adapter.validate_python(value)
    except ValidationError:
        text = inspect.formatannotation(annotation).replace("NoneType", "null")
        return shape_tail(describe(value), f"{text}, as uvicorn.Config takes it")
    return None
