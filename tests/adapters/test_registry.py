"""From `affinity` to an adapter: what is refused, and what the app itself tells."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from adapters.helpers import CLEARED, NAME, SID, call, cookie, request, signed
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.datastructures import Secret
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.routing import Mount

from server_adapters.registry import PRESETS, AffinityError, build, check_options

HEADER = {"sources": [{"header": "x-session"}], "unknown": "claim"}
FOUND = {"preset": "starlette-session", "field": "user"}


def keys(options: dict[str, Any]) -> list[str]:
    """The keys that are complained about."""
    return [error.key for error in check_options(options)]


@pytest.mark.parametrize(
    "options",
    [
        {"preset": "gym-resources"},
        {"preset": "gym-agent", "session_starts": ["/begin"], "stateless_routes": []},
        FOUND,
        {"preset": "custom", **HEADER, "starts": None},
        {"preset": "custom", "replies": [{"issue_cookie": "gsv"}]},
        {
            "preset": "custom",
            "sources": [{"signed_cookie": {"name": "a", "secret": "b", "field": "c", "max_age": None}}],
        },
        {"preset": "none", "cookie": None, "unknown": None},
        {"preset": "gym-resources", "stateless_routes": None, "max_age": None, "sources": None},
    ],
)
def test_what_is_right(options: dict[str, Any]) -> None:
    """Nothing to complain about."""
    assert check_options(options) == []


def source(**entry: Any) -> dict[str, Any]:
    """A custom affinity with one source."""
    return {"preset": "custom", "unknown": "claim", "sources": [entry]}


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({}, ["preset"]),
        ({"preset": "gym"}, ["preset"]),
        ({"preset": ["none"]}, ["preset"]),
        ({"preset": "none", "cookie": "a"}, ["cookie"]),
        ({"preset": "starlette-session"}, ["field"]),
        ({**FOUND, "remember_closed": False}, ["remember_closed"]),
        ({"preset": "gym-resources", "sources": [], "unknown": "claim"}, ["sources", "unknown"]),
        (
            {"preset": "gym-resources", "session_starts": ["/a", "b"], "session_ends": [7]},
            ["session_starts[1]", "session_ends[0]"],
        ),
        ({"preset": "gym-agent", "stateless_routes": ["post /a"]}, ["stateless_routes[0]"]),
        ({"preset": "gym-resources", "cookie": "a b", "secret": "c"}, ["cookie"]),
        ({"preset": "custom"}, ["sources"]),
        ({"preset": "custom", "sources": []}, ["sources"]),
        ({"preset": "custom", "sources": [{"header": "x-session"}]}, ["sources"]),
        ({"preset": "custom", "sources": [{"json": {"field": "a", "routes": ["/a"]}}], "unknown": "pass"}, ["sources"]),
        ({"preset": "custom", **HEADER, "session_starts": ["/a"]}, ["session_starts"]),
        ({"preset": "custom", **HEADER, "starts": ["a"], "ends": ["/a", {}]}, ["starts[0]", "ends[1]"]),
        ({"preset": "custom", **HEADER, "cookie": "a"}, ["cookie"]),
        (source(), ["sources[0]"]),
        (source(cookie="a", header="b"), ["sources[0]"]),
        (source(body="a"), ["sources[0]"]),
        ({"preset": "custom", "sources": ["cookie"]}, ["sources[0]"]),
        (source(cookie="a b"), ["sources[0].cookie"]),
        (source(cookie=""), ["sources[0].cookie"]),
        (source(header="x:y"), ["sources[0].header"]),
        (source(header=7), ["sources[0].header"]),
        (source(query=""), ["sources[0].query"]),
        (source(path="/(?P<session>"), ["sources[0].path"]),
        (source(path="/(?P<id>.*)"), ["sources[0].path"]),
        (source(path=None), ["sources[0].path"]),
        (source(json="field"), ["sources[0].json"]),
        (source(json={"field": "a"}), ["sources[0].json"]),
        (source(json={"field": "a", "routes": "/a"}), ["sources[0].json"]),
        (source(json={"field": "", "routes": ["/a"]}), ["sources[0].json.field"]),
        (source(json={"field": "a", "routes": ["/a", "b"]}), ["sources[0].json.routes[1]"]),
        (source(signed_cookie="a"), ["sources[0].signed_cookie"]),
        (source(signed_cookie={"name": "a", "secret": "b"}), ["sources[0].signed_cookie"]),
        (source(signed_cookie={"name": "a", "secret": "b", "field": "c", "x": 1}), ["sources[0].signed_cookie"]),
        (source(signed_cookie={"name": "a;", "secret": "b", "field": "c"}), ["sources[0].signed_cookie.name"]),
        (source(signed_cookie={"name": "a", "secret": 7, "field": "c"}), ["sources[0].signed_cookie.secret"]),
        (source(signed_cookie={"name": "a", "secret": "b", "field": ""}), ["sources[0].signed_cookie.field"]),
        (
            source(signed_cookie={"name": "a", "secret": "b", "field": "c", "max_age": 0}),
            ["sources[0].signed_cookie.max_age"],
        ),
        (
            {"preset": "custom", **HEADER, "replies": [{"header": "a"}, {"set_cookie": "="}]},
            ["replies[0]", "replies[1].set_cookie"],
        ),
        (
            {"preset": "custom", **HEADER, "replies": [{"issue_cookie": "a"}, {"issue_cookie": "b"}]},
            ["replies[1].issue_cookie"],
        ),
        (
            {
                "preset": "custom",
                "sources": [{"signed_cookie": {"name": "a", "secret": "b", "field": "c"}}],
                "replies": [{"issue_cookie": "a"}],
            },
            ["replies[0].issue_cookie"],
        ),
        ({"preset": "custom", **HEADER, "gone": {"status": 200}}, ["gone.status"]),
        ({"preset": "custom", **HEADER, "gone": {"status": "404", "text": ""}}, ["gone.text", "gone.status"]),
    ],
)
def test_what_is_wrong(options: dict[str, Any], wrong: list[str]) -> None:
    """Every error at once, each with its key, what was found and what was expected."""
    assert keys(options) == wrong
    for error in check_options(options):
        assert str(error).startswith("found ")
        assert ", expected " in str(error)
    with pytest.raises(AffinityError) as caught:
        build(options, None, server="test")
    assert caught.value.key == wrong[0]


def test_a_secret_is_never_shown() -> None:
    """Errors go to logs."""
    wrong = source(signed_cookie={"name": "a", "secret": ["hush"], "field": "c"})
    app = Starlette(middleware=[Middleware(SessionMiddleware, secret_key="hush")])
    with pytest.raises(AffinityError) as caught:
        build({**FOUND, "secret": "quiet"}, app, server="test")
    for text in (str(check_options(wrong)[0]), str(caught.value)):
        assert "hush" not in text
        assert "quiet" not in text


class Derived(SessionMiddleware):
    """An app's own kind of it."""


class Fixed(SessionMiddleware):
    """One whose settings are its own affair."""

    def __init__(self, app: Any) -> None:
        super().__init__(app, secret_key="hidden")


class Passing(SessionMiddleware):
    """One that passes on what it is given."""

    def __init__(self, app: Any, /, **kwargs: Any) -> None:
        super().__init__(app, **kwargs)


def with_middleware(*entries: Middleware) -> Starlette:
    """An app."""
    return Starlette(middleware=list(entries))


@pytest.mark.parametrize(
    ("entry", "name", "secret"),
    [
        (Middleware(SessionMiddleware, secret_key=NAME, session_cookie=NAME), NAME, NAME),
        (Middleware(SessionMiddleware, NAME, NAME, 60), NAME, NAME),
        (Middleware(SessionMiddleware, secret_key="k"), "session", "k"),
        (Middleware(SessionMiddleware, secret_key=Secret("k")), "session", "k"),
        (Middleware(Derived, secret_key="k", session_cookie="c", domain="x.org"), "c", "k"),
        (Middleware(Passing, secret_key="k", session_cookie="c"), "c", "k"),
    ],
)
def test_name_and_secret_are_found_in_the_app(entry: Middleware, name: str, secret: str) -> None:
    """However the middleware was added; beside others, and without touching the app."""
    app = with_middleware(Middleware(CORSMiddleware, allow_origins=["*"]), entry)
    before = list(app.user_middleware)
    adapter = build(FOUND, app, server="test")
    raw = f"{name}={signed({'user': SID}, secret=secret)}".encode()
    assert adapter.read(request(cookies=raw)).session == SID
    assert app.user_middleware == before
    assert app.middleware_stack is None


def test_the_apps_own_attributes_are_used() -> None:
    """A cookie is only deleted by one with its path and domain."""
    entry = Middleware(
        SessionMiddleware, secret_key=NAME, session_cookie=NAME, path="/x", domain="d.org", https_only=True
    )
    adapter = build(FOUND, with_middleware(entry), server="test")
    own = adapter.own_reply("session_gone", request(), adapter.read(request()), {})
    line = dict(own.headers)[b"set-cookie"].decode()
    assert line == CLEARED.replace("path=/", "path=/x").replace("samesite=lax", "samesite=lax; secure; domain=d.org")


@pytest.mark.parametrize(("age", "known"), [(30, True), (90, False)])
def test_max_age_is_found_and_can_be_given(age: int, known: bool) -> None:
    """From the app, or in its place."""
    import time

    raw = f"{NAME}={signed({'user': SID}, at=int(time.time()) - age)}".encode()
    for max_age in (60, 10_000):
        app = with_middleware(Middleware(SessionMiddleware, secret_key=NAME, session_cookie=NAME, max_age=max_age))
        adapter = build({**FOUND, "max_age": 60}, app, server="test")
        assert (adapter.read(request(cookies=raw)).session == SID) is known
    app = with_middleware(Middleware(SessionMiddleware, secret_key=NAME, session_cookie=NAME, max_age=60))
    assert (build(FOUND, app, server="test").read(request(cookies=raw)).session == SID) is known
    assert build(FOUND, app, server="test").life.idle_seconds == 60.0
    app = with_middleware(Middleware(SessionMiddleware, secret_key=NAME, session_cookie=NAME, max_age=None))
    assert build(FOUND, app, server="test").life.idle_seconds == 1209600.0


def test_a_fastapi_app() -> None:
    """As Gym builds its own: the app's cookie is what the adapter reads."""
    app = FastAPI()

    @app.middleware("http")
    async def assign(given: Any, call_next: Any) -> Any:
        given.session["session_id"] = given.session.get("session_id", SID)
        return await call_next(given)

    app.add_middleware(SessionMiddleware, secret_key=NAME, session_cookie=NAME)
    adapter = build({"preset": "gym-resources"}, app, server="test")
    _, headers, _ = call(app, request("GET", "/none"))
    [line] = [value for key, value in headers if key == b"set-cookie"]
    assert adapter.read(request(cookies=line.split(b";")[0])).session == SID


NOTHING: list[Any] = []
WRAPPED = CORSMiddleware(Starlette())
TWO = with_middleware(
    Middleware(SessionMiddleware, secret_key="a", session_cookie="one"),
    Middleware(SessionMiddleware, secret_key="b", session_cookie="two"),
)
ONE = with_middleware(Middleware(SessionMiddleware, secret_key="a", session_cookie="one"))
MOUNTED = Starlette(routes=[Mount("/sub", app=ONE)])
GIVE = ("affinity.cookie", "affinity.secret")


@pytest.mark.parametrize(
    ("options", "app", "key", "parts"),
    [
        ({}, Starlette(), "cookie", ("starlette.applications.Starlette", "SessionMiddleware", *GIVE)),
        ({}, MOUNTED, "cookie", ("mounted", *GIVE)),
        ({}, WRAPPED, "cookie", ("CORSMiddleware", "wrapped", *GIVE)),
        ({}, test_a_fastapi_app, "cookie", ("function", *GIVE)),
        ({}, None, "cookie", ("no app", *GIVE)),
        ({"cookie": "one"}, Starlette(), "cookie", GIVE),
        ({"secret": "a"}, Starlette(), "cookie", GIVE),
        ({"cookie": "three"}, ONE, "cookie", ("for one", "none for three", *GIVE)),
        ({}, TWO, "cookie", ("one, two", "affinity.cookie")),
        ({"cookie": "one", "secret": "b"}, ONE, "secret", ("cookie one",)),
        ({}, with_middleware(Middleware(Fixed)), "cookie", GIVE),
        ({}, with_middleware(Middleware(SessionMiddleware, *NOTHING)), "cookie", GIVE),
    ],
)
def test_what_to_say_when_there_is_none(options: dict[str, Any], app: Any, key: str, parts: tuple[str, ...]) -> None:
    """What was found, and which keys to give."""
    with pytest.raises(AffinityError) as caught:
        build({**FOUND, **options}, app, server="test")
    assert caught.value.key == key
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("options", "app"),
    [({"cookie": "two"}, TWO), ({"cookie": "two", "secret": "b"}, WRAPPED), ({"cookie": "two", "secret": "b"}, ONE)],
)
def test_given_keys_are_enough(options: dict[str, Any], app: Any) -> None:
    """They pick one of several, and stand in for what cannot be found."""
    adapter = build({**FOUND, **options}, app, server="test")
    raw = f"two={signed({'user': SID}, secret='b')}".encode()
    assert adapter.read(request(cookies=raw)).session == SID


def test_every_preset_can_be_built() -> None:
    """The registry's names are those of the adapters."""
    options: dict[str, dict[str, Any]] = {"custom": HEADER, "none": {}, "starlette-session": {"field": "user"}}
    for preset in PRESETS:
        given = options.get(preset, {})
        adapter = build({"preset": preset, **given}, ONE, server="test")
        assert adapter.name == preset
        assert adapter.has_sessions is (preset != "none")
        adapter.read(request(cookies=cookie()))


def test_starlette_is_not_imported() -> None:
    """A server of another framework pays nothing for it."""
    code = (
        "import sys; from server_adapters.registry import build;"
        "build({'preset': 'gym-resources', 'cookie': 'a', 'secret': 'b'}, object(), server='s');"
        "sys.exit(any(name.partition('.')[0] in ('starlette', 'fastapi') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
