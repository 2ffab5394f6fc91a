"""What an app looks like: which preset would follow its sessions, and what no preset can mend.

The app is looked at from outside, by the names of the classes and modules that it is made of, so that nothing is
imported which the app has not imported itself. What is looked at: the app, what it wraps, its middleware, its routes
and what they hold (bound methods, closures), down to mounted apps.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

import msgspec

from server_adapters.discovery import find_session_cookies
from server_adapters.registry import PRESETS

MOST_LOOKED_AT = 2000
"""Objects; an app of a thousand routes has some more, and whatever else it holds is not followed."""

INNER = ("app", "_app", "asgi_app", "other_asgi_app", "starlette_app", "wrapped", "inner", "application", "router")
"""Attributes under which wrappers keep the app that they wrap."""

PARTS = ("session_manager", "engineio_server", "manager", "func", "__wrapped__")
"""Attributes that say what an endpoint works with."""

WHOLE_PACKAGES = {"marimo": "marimo", "shiny": "shiny", "gradio": "gradio", "streamlit": "streamlit"}
AGENT_ROUTES = ({"/v1/agent_sessions"}, {"/run", "/v1/responses"})
RESOURCES_ROUTES = ({"/seed_session"}, {"/reset", "/step"})


class Likeness(msgspec.Struct, frozen=True):
    """A preset that would suit an app, and why.

    options   what has to be given beside the preset, as `key: value`
    """

    preset: str
    because: str
    options: str = ""

    @property
    def known(self) -> bool:
        """Whether this version has the preset."""
        return self.preset in PRESETS

    @property
    def affinity(self) -> str:
        """As a config says it."""
        return f"affinity: {{{', '.join(filter(None, (f'preset: {self.preset}', self.options)))}}}"


class _Found(msgspec.Struct):
    """What has been seen in an app."""

    posts: set[str] = msgspec.field(default_factory=set)
    cookies: list[str] = msgspec.field(default_factory=list)
    gym_cookie: bool = False
    packages: set[str] = msgspec.field(default_factory=set)
    mcp: bool = False
    mcp_without_state: bool = False
    mcp_sse: bool = False
    socketio: bool = False
    socketio_alone: bool = False


def likenesses(app: object) -> list[Likeness]:
    """The presets that would suit an app, the likeliest first; empty when nothing in it is known."""
    return list(_likenesses(_look_at(app)))


def cautions(app: object) -> list[str]:
    """What several workers of this app will do wrong, whatever the preset."""
    return list(_cautions(_look_at(app)))


def _likenesses(found: _Found) -> Iterator[Likeness]:
    if found.cookies:
        cookie = f"SessionMiddleware, cookie {found.cookies[0]}"
        if any(routes <= found.posts for routes in RESOURCES_ROUTES):
            yield Likeness("gym-resources", f"{cookie}, and the routes of a Gym resources server")
        elif any(routes <= found.posts for routes in AGENT_ROUTES):
            yield Likeness("gym-agent", f"{cookie}, and the routes of a Gym agent server")
        elif found.gym_cookie:
            yield Likeness("gym-resources", f"{cookie}, with the cookie's name for a secret, as Gym has it")
    for package, preset in WHOLE_PACKAGES.items():
        if package in found.packages:
            yield Likeness(preset, f"an app of {package}")
    if found.socketio:
        yield Likeness("socketio", "socketio.ASGIApp")
    if found.mcp:
        yield Likeness("mcp", "an MCP endpoint, Streamable HTTP with sessions")
    if found.mcp_sse:
        yield Likeness("mcp-sse", "an MCP endpoint, HTTP+SSE")
    if found.cookies and not {"marimo", "gradio"} & found.packages:
        field = "field: KEY, the key of request.session that names the session"
        yield Likeness("starlette-session", f"SessionMiddleware, cookie {found.cookies[0]}", field)
    if found.mcp_without_state and not found.mcp and not found.cookies:
        yield Likeness("none", "an MCP endpoint that keeps no sessions (stateless)")


def _cautions(found: _Found) -> Iterator[str]:
    if found.mcp or found.mcp_without_state:
        yield (
            "MCP: subscriptions/listen hears only what happens in its own worker: the SDK's bus is in the process;"
            " give the server a bus that all workers share, or keep one worker"
        )
    if "marimo" in found.packages:
        yield (
            "marimo: its skew protection compares hashes that are the same in all workers, which are forked from one"
            " process, and others after the service's next start: pages from before must be loaded anew then, unless"
            " PYTHONHASHSEED is set in the environment of gym-supervise itself"
        )
    if found.socketio_alone:
        yield (
            "Socket.IO: rooms and broadcasts reach the clients of one worker only; give the server a client_manager"
            " that all workers share, such as socketio.AsyncRedisManager"
        )
    if "gradio" in found.packages:
        yield "gradio: queues and their limits, and variables outside gr.State, are each worker's own"
    if "streamlit" in found.packages:
        yield "streamlit: what st.cache_data and st.cache_resource keep is each worker's own"


def _look_at(app: object) -> _Found:
    found = _Found()
    seen: set[int] = set()
    queue: list[object] = [app]
    while queue and len(seen) < MOST_LOOKED_AT:
        one = queue.pop(0)
        if id(one) in seen or one is None:
            continue
        seen.add(id(one))
        _note(found, one)
        queue += _held_by(one)
    return found


def _note(found: _Found, one: object) -> None:
    kinds = one.__mro__ if isinstance(one, type) else type(one).__mro__
    for kind in kinds:
        top = str(kind.__module__).partition(".")[0]
        match top, kind.__name__:
            case (("socketio" | "engineio"), "ASGIApp"):
                found.socketio = True
            case "socketio", "AsyncManager":
                found.socketio_alone = type(one).__name__ == "AsyncManager"
            case _, "StreamableHTTPSessionManager":
                stateless = bool(_attribute(one, "stateless"))
                found.mcp_without_state |= stateless
                found.mcp |= not stateless
            case _, "StreamableHTTPASGIApp":  # fastmcp's has its manager from its lifespan on
                found.mcp |= _attribute(one, "session_manager") is None
            case _, "SseServerTransport":
                found.mcp_sse = True
            case _ if top in WHOLE_PACKAGES:
                found.packages.add(top)
    if isinstance(one, FunctionType) and (top := str(one.__module__).partition(".")[0]) in WHOLE_PACKAGES:
        found.packages.add(top)
    methods, path = _attribute(one, "methods"), _attribute(one, "path")
    if isinstance(methods, set | list | tuple) and "POST" in methods and isinstance(path, str):
        found.posts.add(path)
    for cookie in find_session_cookies(one) if _listed(_attribute(one, "user_middleware")) else ():
        found.gym_cookie |= cookie.name == cookie.secret
        if cookie.name not in found.cookies:
            found.cookies.append(cookie.name)


def _held_by(one: object) -> Iterator[object]:
    if isinstance(one, MethodType):
        yield one.__self__
        return
    if isinstance(one, FunctionType):
        for cell in one.__closure__ or ():
            try:
                held = cell.cell_contents
            except ValueError:  # a variable that has no value yet
                continue
            if callable(held) or hasattr(held, "handle_post_message"):
                yield held
        yield _attribute(one, "__wrapped__")
        return
    if isinstance(one, functools.partial):
        yield one.func
        yield from one.args
        return
    if isinstance(one, type):
        return
    routes = _attribute(one, "routes")
    if isinstance(routes, list):
        yield from routes
    for name in itertools.chain(INNER, PARTS, ("endpoint",)):
        yield _attribute(one, name)
    for entry in _listed(_attribute(one, "user_middleware")):
        yield _attribute(entry, "cls")
        yield from (value for value in (_attribute(entry, "kwargs") or {}).values() if callable(value))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _attribute(one: object, name: str) -> Any:
    """An attribute of an object of whatever kind: one that raises, or makes something at every name, has none."""
    try:
        return vars(one).get(name) if name in ("manager", "inner", "wrapped") else getattr(one, name, None)
    except Exception:
        return None
