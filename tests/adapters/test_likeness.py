"""What an app looks like: real apps where their packages are at hand, stand-ins of the same structure where not."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from mcp.server import MCPServer
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.routing import Mount, Route, WebSocketRoute

from server_adapters.likeness import cautions, likenesses

App = Callable[[], Any]


async def page(request: Any) -> None: ...


def posts(*paths: str) -> list[Route]:
    """Routes."""
    return [Route(path, page, methods=["POST"]) for path in paths]


def session(name: str = "session", secret: str = "s") -> list[Middleware]:
    """The middleware of an app with sessions."""
    return [Middleware(SessionMiddleware, secret_key=secret, session_cookie=name)]


def stand_in(module: str, name: str, bases: tuple[type, ...] = (), **attributes: Any) -> Any:
    """An object of a class as a package has it."""

    async def call(self: Any, scope: Any, receive: Any, send: Any) -> None: ...

    kind = type(name, bases, {"__module__": module, "__call__": call})
    one = kind()
    vars(one).update(attributes)
    return one


def endpoint_of(module: str) -> Any:
    """A function as a package's module has it."""

    async def endpoint(request: Any) -> None: ...

    endpoint.__module__ = module
    return endpoint


def decorated(inner: Any) -> Any:
    """A wrapper that only its closure gives away."""

    async def wrapper(request: Any) -> None:
        await inner(request)

    return wrapper


def socketio_app(manager: str) -> Any:
    """socketio.ASGIApp with a server and its manager."""
    server = stand_in("socketio.async_server", "AsyncServer", manager=stand_in(f"socketio.{manager}", manager))
    return stand_in("socketio.asgi", "ASGIApp", engineio_server=server, other_asgi_app=None)


def wrapped(app: Any) -> Any:
    """An app inside two others that know nothing of it."""
    return SimpleNamespace(app=SimpleNamespace(asgi_app=app))


APPS: dict[str, tuple[App, list[str]]] = {
    "nothing": (Starlette, []),
    "bare": (lambda: page, []),
    "session": (lambda: Starlette(middleware=session()), ["starlette-session"]),
    "gym resources": (
        lambda: Starlette(routes=posts("/seed_session", "/verify"), middleware=session()),
        ["gym-resources", "starlette-session"],
    ),
    "gymnasium": (
        lambda: Starlette(routes=posts("/reset", "/step"), middleware=session()),
        ["gym-resources", "starlette-session"],
    ),
    "only a step": (lambda: Starlette(routes=posts("/step"), middleware=session()), ["starlette-session"]),
    "gym agent": (
        lambda: Starlette(routes=posts("/run", "/v1/responses"), middleware=session()),
        ["gym-agent", "starlette-session"],
    ),
    "gym model, no session": (lambda: Starlette(routes=posts("/v1/responses")), []),
    "gym's cookie": (
        lambda: Starlette(routes=posts("/tool"), middleware=session("A___a", "A___a")),
        ["gym-resources", "starlette-session"],
    ),
    "routes without a cookie": (lambda: Starlette(routes=posts("/seed_session")), []),
    "mcp": (lambda: MCPServer("x").streamable_http_app(), ["mcp"]),
    "mcp, mounted": (lambda: Starlette(routes=[Mount("/a", MCPServer("x").streamable_http_app())]), ["mcp"]),
    "mcp, stateless": (lambda: MCPServer("x").streamable_http_app(stateless_http=True), ["none"]),
    "fastmcp": (
        lambda: Starlette(
            routes=[Route("/mcp", stand_in("fastmcp.server.http", "StreamableHTTPASGIApp", session_manager=None))]
        ),
        ["mcp"],
    ),
    "mcp-sse": (lambda: MCPServer("x").sse_app(), ["mcp-sse"]),
    "mcp both": (
        lambda: Starlette(
            routes=[Mount("/a", MCPServer("x").sse_app()), Mount("/b", MCPServer("y").streamable_http_app())]
        ),
        ["mcp", "mcp-sse"],
    ),
    "socketio": (lambda: socketio_app("AsyncManager"), ["socketio"]),
    "socketio, wrapped": (lambda: wrapped(socketio_app("AsyncManager")), ["socketio"]),
    "marimo": (
        lambda: Starlette(
            routes=[Mount("/", Starlette(routes=[WebSocketRoute("/ws", endpoint_of("marimo._server.api"))]))]
        ),
        ["marimo"],
    ),
    "marimo, decorated": (
        lambda: Starlette(routes=[Route("/x", decorated(decorated(endpoint_of("marimo._server.api"))))]),
        ["marimo"],
    ),
    "shiny": (lambda: stand_in("shiny._app", "App"), ["shiny"]),
    "gradio": (lambda: stand_in("gradio.routes", "App", (FastAPI,)), ["gradio"]),
    "streamlit": (lambda: stand_in("streamlit.web.server.starlette", "App", (Starlette,)), ["streamlit"]),
}


def fastapi_with(mounted: Any) -> FastAPI:
    """Mounted as most people do."""
    app = FastAPI()
    app.mount("/inner", mounted)
    return app


APPS["gradio, mounted"] = (lambda: fastapi_with(APPS["gradio"][0]()), ["gradio"])
APPS["mcp, in FastAPI"] = (lambda: fastapi_with(MCPServer("x").streamable_http_app()), ["mcp"])


@pytest.mark.parametrize("name", APPS)
def test_an_app_looks_like_its_preset(name: str) -> None:
    """The likeliest first, each with its reason."""
    make, expected = APPS[name]
    found = likenesses(make())
    assert [one.preset for one in found] == expected
    assert all(one.because for one in found)


def test_what_is_proposed_can_be_written_into_a_config() -> None:
    """With what a preset needs besides."""
    starlette, gym = (Starlette(middleware=session(*names)) for names in (("s", "t"), ("A___a", "A___a")))
    assert likenesses(gym)[0].affinity == "affinity: {preset: gym-resources}"
    assert likenesses(starlette)[0].affinity.startswith("affinity: {preset: starlette-session, field: KEY")
    assert likenesses(starlette)[0].known


CAUTIONS = {
    "session": [],
    "mcp": ["subscriptions/listen"],
    "mcp, stateless": ["subscriptions/listen"],
    "mcp-sse": [],
    "socketio": ["rooms and broadcasts"],
    "marimo": ["PYTHONHASHSEED"],
    "gradio": ["queues and their limits"],
    "streamlit": ["st.cache_data"],
}


@pytest.mark.parametrize("name", CAUTIONS)
def test_what_no_preset_mends_is_said(name: str) -> None:
    """One sentence for each."""
    found = cautions(APPS[name][0]())
    assert len(found) == len(CAUTIONS[name])
    assert all(part in text for part, text in zip(CAUTIONS[name], found, strict=True))


def test_a_shared_manager_mends_socketio() -> None:
    """Then rooms and broadcasts reach everybody."""
    assert cautions(socketio_app("AsyncRedisManager")) == []


def test_an_app_that_resists_looking_is_left_alone() -> None:
    """Attributes that raise, objects that hold themselves, proxies with every attribute: an answer all the same."""

    class Hostile:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    class Everything:
        def __getattr__(self, name: str) -> Any:
            return Everything()

    loop = SimpleNamespace()
    loop.app = loop
    for app in (Hostile(), Everything(), loop, None, 3):
        assert likenesses(app) == []
