"""uvicorn's own logging settings: `log_config`, `log_level`, `access_log`, `use_colors`.

They are applied before the app is imported, as a plain uvicorn does, so that an app which sets up logging itself has
the last word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import uvicorn

from supervisor.logs import lines as logs

KEYS = ("log_config", "log_level", "access_log", "use_colors")


class LogConfigError(ValueError):
    """uvicorn's logging settings cannot be applied."""


def apply(options: Mapping[str, Any]) -> None:
    """Apply the settings among uvicorn's `options`. Raises LogConfigError."""
    given: dict[str, Any] = {"log_config": None} | {key: options[key] for key in KEYS if key in options}
    try:
        uvicorn.Config("none:app", **given)  # its constructor sets up logging
    except Exception as error:
        cause = f"{error} ({error.__cause__})" if error.__cause__ else str(error)
        raise LogConfigError(f"found settings that cannot be applied: {type(error).__name__}: {cause}") from error
    if options.get("access_log", True):
        logs.hush_uvicorn()
    logs.settle()


def others(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are not applied yet."""
    return {key: value for key, value in options.items() if key not in KEYS}
