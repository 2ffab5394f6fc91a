"""The config file: its keys as models, and `load` and `locate`, which read it."""

from __future__ import annotations

from supervisor.config.bind import Bind
from supervisor.config.load import Place, from_options, load, locate
from supervisor.config.models import (
    MAX_WORKERS,
    Affinity,
    ClaimsConfig,
    Config,
    LogConfig,
    Recycle,
    ScriptApp,
    ServerConfig,
    Timeouts,
)

__all__ = [
    "MAX_WORKERS",
    "Affinity",
    "Bind",
    "ClaimsConfig",
    "Config",
    "LogConfig",
    "Place",
    "Recycle",
    "ScriptApp",
    "ServerConfig",
    "Timeouts",
    "from_options",
    "load",
    "locate",
]
