"""The session cookie's name and secret, from the app's own SessionMiddleware.

Starlette and FastAPI keep what `add_middleware` was given in `app.user_middleware`. It is looked at from outside:
neither is imported, so that a server without them pays nothing, and nothing is added to the app.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import msgspec

from server_adapters.errors import AffinityError
from server_adapters.session_cookie import DEFAULT_MAX_AGE, CookieSettings

GIVE_KEYS = (
    "give affinity.cookie (its session_cookie) and affinity.secret (its secret_key), and affinity.max_age where it is"
    f" not {DEFAULT_MAX_AGE}"
)


def find_session_cookies(app: object) -> list[CookieSettings]:
    """The settings of every SessionMiddleware that the app adds itself, the outermost first."""
    found = []
    for entry in getattr(app, "user_middleware", None) or ():
        cls = getattr(entry, "cls", None)
        if isinstance(cls, type) and _is_session_middleware(cls):
            settings = _settings(cls, getattr(entry, "args", ()), getattr(entry, "kwargs", {}))
            if settings is not None:
                found.append(settings)
    return found


def _is_session_middleware(cls: type) -> bool:
    return any(
        base.__name__ == "SessionMiddleware" and base.__module__ == "starlette.middleware.sessions"
        for base in cls.__mro__
    )


def _settings(cls: type, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> CookieSettings | None:
    """What the middleware would be made with; None where a subclass keeps its secret elsewhere."""
    try:
        bound = inspect.signature(cls).bind(None, *args, **kwargs)
    except (TypeError, ValueError):
        return None
    bound.apply_defaults()
    given = bound.arguments
    given = given | given.get("kwargs", {})  # what a subclass with **kwargs passes on
    if given.get("secret_key") is None:
        return None
    names = ("max_age", "path", "same_site", "https_only", "domain", "partitioned")
    # A Secret shows itself as asterisks but for str(), which is what the middleware calls.
    return CookieSettings(
        given.get("session_cookie", "session"),
        str(given["secret_key"]),
        **{name: given[name] for name in names if name in given},
    )


def session_cookie_settings(options: Mapping[str, Any], app: object | None) -> CookieSettings:
    """The settings that `affinity` and the app say together; what `affinity` gives comes first.

    Raises:
        AffinityError: neither says name and secret, or they contradict each other.

    """
    cookie, secret, max_age = options.get("cookie"), options.get("secret"), options.get("max_age")
    candidates = [] if app is None else find_session_cookies(app)
    matching = candidates if cookie is None else [one for one in candidates if one.name == cookie]
    if len(matching) > 1:
        names = ", ".join(one.name for one in matching)
        raise AffinityError(
            "cookie", found=f"several SessionMiddlewares ({names})", expected="one", do="say which with affinity.cookie"
        )
    if matching:
        settings = matching[0]
        if secret is not None and secret != settings.secret:
            raise AffinityError(
                "secret",
                found=f"another secret than that of the app's SessionMiddleware for cookie {settings.name}",
                expected="the same",
                do="leave affinity.secret out: it is found in the app",
            )
    elif cookie is not None and secret is not None:
        settings = CookieSettings(cookie, secret)
    else:
        raise AffinityError("cookie", found=_missing(candidates, app, cookie), expected=_EXPECTED, do=GIVE_KEYS)
    return settings if max_age is None else msgspec.structs.replace(settings, max_age=max_age)


_EXPECTED = "a Starlette or FastAPI app with SessionMiddleware"


def _missing(candidates: list[CookieSettings], app: object | None, cookie: str | None) -> str:
    """What was found instead of the SessionMiddleware looked for."""
    if app is None:
        return "no app to look into"
    if candidates:
        return f"SessionMiddleware for {', '.join(one.name for one in candidates)}, none for {cookie}"
    kind = f"{type(app).__module__}.{type(app).__qualname__}"
    if hasattr(app, "user_middleware"):
        return f"none in the app's own middleware ({kind}; that of a mounted sub-app is not looked for)"
    return f"{kind}, which has no list of middleware (a wrapped app hides its own)"
