"""From a server's `affinity` to its adapter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from server_adapters.adapter import Adapter, Life
from server_adapters.custom_options import IDLE_SECONDS, CustomOptions, read_routes, token
from server_adapters.discovery import find_session_cookies, session_cookie_settings
from server_adapters.errors import AffinityError
from server_adapters.gradio import Gradio
from server_adapters.gym_agent import FIELD as AGENT_FIELD
from server_adapters.gym_agent import GymAgent, agent_routes
from server_adapters.gym_resources import FIELD as RESOURCES_FIELD
from server_adapters.gym_resources import GymResources, resources_routes
from server_adapters.marimo import Marimo
from server_adapters.mcp import Mcp
from server_adapters.mcp_sse import McpSse
from server_adapters.none import NoSessions
from server_adapters.routes import Role
from server_adapters.server_kind import ServerKind
from server_adapters.session_cookie import DEFAULT_MAX_AGE, SessionCookie
from server_adapters.shiny import Shiny
from server_adapters.socketio import SocketIO
from server_adapters.starlette_session import StarletteSession
from server_adapters.streamlit import Streamlit

__all__ = ["PRESETS", "AffinityError", "build", "check_options", "find_session_cookies"]

WINDOW_SECONDS = 300.0
STATELESS_ROUTES = ("/aggregate_metrics",)

_LIFE_FIELDS = {"session_close_retry_window_seconds": "window_seconds"}
_LIFE = {"session_close_retry_window_seconds", "idle_seconds", "open_idle_seconds"}
_COOKIE = {"cookie", "secret", "max_age", "field"}
_ROUTES = {"session_starts", "session_ends", "stateless_routes"}
_CUSTOM = {"sources", "replies", "starts", "ends", "lasts", "gone", "unknown", "stateless_routes"}

SERVER_KINDS: Mapping[str, type[ServerKind]] = {
    kind.name: kind for kind in (Mcp, McpSse, SocketIO, Gradio, Marimo, Shiny, Streamlit)
}
"""Servers whose ids are where their protocol says: nothing to configure but how long claims live."""

_KEYS: Mapping[str, frozenset[str]] = {
    "gym-resources": frozenset(_LIFE | _COOKIE | _ROUTES | {"remember_closed"}),
    "gym-agent": frozenset(_LIFE | _COOKIE | _ROUTES | {"remember_closed"}),
    "starlette-session": frozenset(_LIFE | _COOKIE | _ROUTES),
    "custom": frozenset(_LIFE | _CUSTOM),
    **dict.fromkeys(SERVER_KINDS, frozenset(_LIFE)),
    "none": frozenset(),
}


PRESETS: tuple[str, ...] = tuple(_KEYS)
COOKIE_PRESETS = frozenset(preset for preset, keys in _KEYS.items() if keys >= _COOKIE)
"""Those whose ids are in the session cookie of the app's own SessionMiddleware."""

_ROLES = (("session_starts", Role.STARTS), ("session_ends", Role.ENDS), ("stateless_routes", Role.STATELESS))


def build(options: Mapping[str, Any], app: object | None, *, server: str) -> Adapter:
    """The adapter for a server.

    `options` is its `affinity`; keys that are missing or None have the preset's default. `app` is the app that the
    session cookie's name and secret are looked up in, None where there is none yet; `server` its name, for log lines.

    Raises:
        AffinityError: the first thing that is wrong.

    """
    problems = check_options(options)
    if problems:
        raise problems[0]
    given = _given(options)
    preset = given["preset"]
    if preset == "none":
        return NoSessions()
    if preset in SERVER_KINDS:
        kind = SERVER_KINDS[preset]
        lives = {_LIFE_FIELDS.get(key, key): value for key, value in given.items() if key in _LIFE}
        return kind(msgspec.structs.replace(kind.default_life, **lives))
    if preset == "custom":
        life = _life(given, idle=IDLE_SECONDS, explicit=bool(given.get("starts")))
        return CustomOptions(given, server=server).build(life)
    settings = session_cookie_settings(given, app)

    def cookie(default_field: str) -> SessionCookie:
        return SessionCookie(settings, field=given.get("field", default_field), server=server)

    if preset == "starlette-session":
        routes, _ = read_routes(given, _ROLES)
        max_age = DEFAULT_MAX_AGE if settings.max_age is None else settings.max_age
        life = _life(given, idle=float(max_age), explicit=bool(given.get("session_starts")))
        return StarletteSession(cookie(""), routes, life=life)
    given.setdefault("stateless_routes", STATELESS_ROUTES)
    window = given.get("session_close_retry_window_seconds", WINDOW_SECONDS)
    if preset == "gym-agent":
        routes, _ = read_routes(given, _ROLES, into=agent_routes())
        life = _life(given, idle=window, explicit=True, slides=False, rolls_back=True, kept_by_reply=True)
        return GymAgent(cookie(AGENT_FIELD), routes, life=life)
    routes, _ = read_routes(given, _ROLES, into=resources_routes())
    life = _life(given, idle=window, explicit=True, kept_by_reply=True)
    return GymResources(cookie(RESOURCES_FIELD), routes, life=life)


def check_options(options: Mapping[str, Any]) -> list[AffinityError]:
    """Everything that is wrong with an `affinity` and can be seen without the app."""
    given = _given(options)
    preset = given.get("preset")
    if not isinstance(preset, str) or preset not in _KEYS:
        found = "nothing" if preset is None else repr(preset)
        return [AffinityError("preset", found=found, expected=f"one of {', '.join(PRESETS)}")]
    problems = [_out_of_place(key, preset) for key in given if key != "preset" and key not in _KEYS[preset]]
    if preset == "starlette-session" and "field" not in given:
        problems.append(
            AffinityError(
                "field",
                found="nothing",
                expected="the key in `request.session` under which the app keeps its session's id",
                do="such as `field: user_id`",
            )
        )
    if "cookie" in given and "cookie" in _KEYS[preset]:
        try:
            token("cookie", given["cookie"], "a cookie's name")
        except AffinityError as error:
            problems.append(error)
    if preset == "custom":
        problems += CustomOptions(given).errors
    elif preset != "none":
        problems += read_routes(given, _ROLES)[1]
    return problems


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}


def _out_of_place(key: str, preset: str) -> AffinityError:
    keys = ", ".join(sorted(_KEYS[preset])) or "no other key"
    others = [name for name in PRESETS if key in _KEYS[name]]
    do = f"{key} belongs to {', '.join(others)}" if others else ""
    if preset == "custom" and key in ("session_starts", "session_ends"):
        do = f"custom has `{key.removeprefix('session_')}`, which takes methods as well"
    return AffinityError(key, found=f"a key that preset {preset} does not have", expected=keys, do=do)


def _life(
    given: Mapping[str, Any],
    *,
    idle: float,
    explicit: bool,
    slides: bool = True,
    rolls_back: bool = False,
    kept_by_reply: bool = False,
) -> Life:
    return Life(
        explicit=explicit,
        window_seconds=given.get("session_close_retry_window_seconds", WINDOW_SECONDS),
        idle_seconds=given.get("idle_seconds", idle),
        open_idle_seconds=given.get("open_idle_seconds"),
        remember_closed=given.get("remember_closed", True),
        slides=slides,
        rolls_back=rolls_back,
        kept_by_reply=kept_by_reply,
    )
