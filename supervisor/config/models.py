"""The config's keys, types and defaults.

Each field's description says what is expected there; config errors quote it. The models check one value at a time;
what concerns several keys at once (workers without affinity, two servers with one bind) is in checks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationInfo,
    field_validator,
)

from supervisor.config.bind import FORMS, Bind, FormError

MAX_WORKERS = 120
"""A server's worker ring has 256 rows; a reload runs two generations, and dead rows wait for their repair."""

KEEP_ALIVE_SECONDS = 30
"""uvicorn's default of 5 s closes connections that pooled clients still use; Gym's own servers take 30."""

UVICORN_DEFAULTS: dict[str, Any] = {"timeout_keep_alive": KEEP_ALIVE_SECONDS}


def _folder(info: ValidationInfo) -> str:
    return str((info.context or {}).get("folder", "."))


def _path(value: object, info: ValidationInfo) -> object:
    """A path from the file: absolute, relative ones below the config file's folder."""
    if not isinstance(value, str | Path):
        return value
    text = str(value)
    if not text or "\0" in text:
        raise FormError("a path")
    return Path(os.path.normpath(os.path.join(_folder(info), text)))


def _bind(value: object, info: ValidationInfo) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        raise FormError(FORMS, do=f"write 127.0.0.1:{value}, or :{value} for every address of this host")
    return Bind.parse(value, folder=_folder(info)) if isinstance(value, str) else value


ConfigPath = Annotated[Path, BeforeValidator(_path)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Model(BaseModel):
    """What all parts of the config have in common: no unknown keys, no conversions, no changes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Affinity(Model):
    """How a server's sessions are found. What a key means, and its default, is the preset's affair."""

    preset: str = Field(description="the name of a preset")
    cookie: str | None = Field(None, min_length=1, description="the session cookie's name")
    secret: str | None = Field(None, min_length=1, description="the secret that signs the session cookie")
    max_age: int | None = Field(None, gt=0, description="seconds, a whole number greater than 0")
    field: str | None = Field(None, min_length=1, description="the key of the session id in the cookie's data")
    session_starts: list[str] = Field([], description="a list of routes")
    session_ends: list[str] = Field([], description="a list of routes")
    stateless_routes: list[str] = Field(["/aggregate_metrics"], description="a list of routes")
    session_close_retry_window_seconds: Seconds = Field(300.0, description="seconds, greater than 0")
    idle_seconds: Seconds | None = Field(None, description="seconds, greater than 0, or null")
    open_idle_seconds: Seconds | None = Field(None, description="seconds, greater than 0, or null")
    remember_closed: bool = Field(True, description="true or false")
    sources: list[dict[str, Any]] | None = Field(None, description="a list of sources, such as {cookie: NAME}")
    replies: list[dict[str, Any]] | None = Field(None, description="a list, such as {response_header: NAME}")
    starts: list[Any] | None = Field(None, description="a list of routes with their methods")
    ends: list[Any] | None = Field(None, description="a list of routes with their methods")
    lasts: list[Any] | None = Field(None, description="a list of routes with their methods")
    gone: dict[str, Any] | None = Field(None, description="a mapping with the gone reply's status and body")
    unknown: Literal["pass", "claim"] | None = Field(None, description="pass or claim")

    def options(self) -> dict[str, Any]:
        """The keys that the config gives, as `server_adapters.registry.build` takes them."""
        return self.model_dump(exclude_unset=True)


class ClaimsConfig(Model):
    """The claim table of one server."""

    max_sessions: int = Field(50000, ge=1, le=10_000_000, description="a whole number from 1 to 10000000")
    gone_retention_seconds: Seconds | None = Field(None, description="seconds, greater than 0, or null")


class Timeouts(Model):
    """Durations in seconds."""

    boot_seconds: Seconds = Field(120.0, description="seconds, greater than 0")
    stall_seconds: Seconds = Field(60.0, description="seconds, greater than 0")
    graceful_seconds: Seconds = Field(30.0, description="seconds, greater than 0")
    drain_seconds: Seconds = Field(300.0, description="seconds, greater than 0")
    claim_seconds: Seconds = Field(5.0, description="seconds, greater than 0")


class Recycle(Model):
    """When a worker is replaced though it is well."""

    max_requests: int | None = Field(None, ge=1, description="a whole number greater than 0, or null")
    max_rss_mib: int | None = Field(None, ge=1, description="MiB, a whole number greater than 0, or null")


class ScriptApp(Model):
    """An app that a script makes, and serves with uvicorn when it is run."""

    script: ConfigPath = Field(description="the path of a Python file")
    argv: list[str] = Field([], description="a list of texts")

    @field_validator("script")
    @classmethod
    def _script_exists(cls, value: Path) -> Path:
        if not value.is_file():
            raise FormError("the path of a Python file", found=f"{value}, which is none")
        return value

    def __str__(self) -> str:
        return f"script {self.script}"


def _reference(value: str) -> str:
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*", value):
        do = "write it as in Python, such as my_package.server:app"
        if value.endswith(".py"):
            do = f"for a script that calls uvicorn write `app: {{script: {value}}}`"
        raise FormError("module:attribute", do=do)
    return value


def _kind_of_app(value: object) -> str:
    """Tags in brackets are left out of an error's key."""
    return "[script]" if isinstance(value, dict | ScriptApp) else "[reference]"


App = Annotated[
    Annotated[str, AfterValidator(_reference), Tag("[reference]")] | Annotated[ScriptApp, Tag("[script]")],
    Discriminator(_kind_of_app),
]


class ServerConfig(Model):
    """One app on one address."""

    app: App = Field(description="module:attribute, or a mapping with script")
    factory: bool = Field(False, description="true or false")
    chdir: ConfigPath = Field(Path(), validate_default=True, description="an existing folder")
    env: dict[str, str] = Field({}, description="a mapping of names to texts")
    bind: Annotated[Bind, BeforeValidator(_bind)] = Field(
        Bind(kind="tcp", host="127.0.0.1", port=8000), description=FORMS
    )
    workers: int = Field(1, ge=1, le=MAX_WORKERS, description=f"a whole number from 1 to {MAX_WORKERS}")
    placement: Literal["least_sessions", "accepting"] = Field(
        "least_sessions", description="least_sessions or accepting"
    )
    affinity: Affinity | None = Field(None, description="a mapping with a preset")
    claims: ClaimsConfig = Field(ClaimsConfig(), description="a mapping with max_sessions, gone_retention_seconds")
    uvicorn: dict[str, Any] = Field(
        {}, validate_default=True, description="a mapping of uvicorn.Config's parameters to values"
    )
    health: str | None = Field(None, description="a path that starts with /, or null")
    boot_tries: int = Field(5, ge=1, description="a whole number greater than 0")
    timeouts: Timeouts = Field(Timeouts(), description="a mapping of durations in seconds")
    recycle: Recycle = Field(Recycle(), description="a mapping with max_requests, max_rss_mib")

    _from_script: frozenset[str] = PrivateAttr(frozenset())

    @property
    def script(self) -> ScriptApp | None:
        """The script that serves the app; None where the app is one that can be imported."""
        return self.app if isinstance(self.app, ScriptApp) else None

    @property
    def open_to_script(self) -> frozenset[str]:
        """Which of `bind` and `workers` the config leaves to the script."""
        return frozenset({"bind", "workers"} - self.model_fields_set) if self.script else frozenset()

    @property
    def from_script(self) -> frozenset[str]:
        """Which of `bind` and `workers` are as the script has said."""
        return self._from_script

    def with_script(self, *, bind: Bind, workers: int) -> ServerConfig:
        """The same server with what its script says, where the config has said nothing."""
        said = {"bind": bind, "workers": workers}
        update = {key: said[key] for key in self.open_to_script}
        copy = self.model_copy(update=update)
        copy._from_script = self._from_script | update.keys()
        return copy

    @field_validator("chdir")
    @classmethod
    def _chdir_exists(cls, value: Path) -> Path:
        if not value.is_dir():
            raise FormError("an existing folder", found=f"{value}, which is none")
        return value

    @field_validator("env")
    @classmethod
    def _env_is_possible(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise FormError("names of letters, digits and underscores", found=repr(name))
            if "\0" in text:
                raise FormError("a text without a NUL byte", found=f"one in {name}")
        return value

    @field_validator("health")
    @classmethod
    def _health_is_a_path(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"/[!-~]*", value):
            raise FormError("a path that starts with /, or null")
        return value

    @field_validator("uvicorn")
    @classmethod
    def _uvicorn_defaults(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if isinstance(info.data.get("app"), ScriptApp):
            return value  # the script's own options come between ours and the config's
        return UVICORN_DEFAULTS | value


class LogConfig(Model):
    """Log lines, the same in supervisor and workers."""

    level: Literal["debug", "info", "warning", "error", "critical"] = Field(
        "info", description="debug, info, warning, error or critical"
    )
    format: Literal["console", "json"] = Field("console", description="console or json")


class Config(Model):
    """The whole file. Paths are absolute."""

    name: str = Field(description="a name")
    runtime_dir: ConfigPath = Field(description="the path of a folder")
    servers: dict[str, ServerConfig] = Field(min_length=1, description="a mapping of at least one server")
    log: LogConfig = Field(LogConfig(), description="a mapping with level, format")

    _source: Path | None = PrivateAttr(None)
    _from_options: bool = PrivateAttr(False)
    _shown: str = PrivateAttr("")
    _warnings: tuple[str, ...] = PrivateAttr(())
    _lines: dict[tuple[str | int, ...], int] = PrivateAttr({})

    @property
    def source(self) -> Path | None:
        """The file that it was read from, an absolute path."""
        return self._source

    @property
    def from_options(self) -> bool:
        """Whether it has no file: `run` was told everything."""
        return self._from_options

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is allowed but probably not meant, one sentence each; `serve` logs them, `check` shows them."""
        return self._warnings

    def place_of(self, path: tuple[str | int, ...]) -> str:
        """`FILE:LINE` of a key, or of the nearest one above it that is in the file."""
        while path and path not in self._lines:
            path = path[:-1]
        return f"{self._shown}:{self._lines.get(path, 1)}"

    def with_servers(self, servers: Mapping[str, ServerConfig]) -> Config:
        """The same config with other servers."""
        return self.model_copy(update={"servers": dict(servers)})

    def of_options(self) -> Config:
        """The same config, knowing that there is no file."""
        copy = self.model_copy()
        copy._from_options = True
        return copy

    def with_origin(self, source: Path, warnings: tuple[str, ...], lines: dict[tuple[str | int, ...], int]) -> Config:
        """The same config, knowing where it came from."""
        copy = self.model_copy()
        copy._source = Path(os.path.abspath(source))
        copy._shown = str(source)
        copy._warnings = warnings
        copy._lines = lines
        return copy
