"""Preset custom's part of `affinity`: from the config's mappings to sources, routes and replies.

Every mistake is collected with its key, so that a config's errors are told all at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from server_adapters.adapter import Life
from server_adapters.custom import Custom, Gone
from server_adapters.custom_bodies import BODIES, FRAMES, GivenOut, given_out, json_name, json_path
from server_adapters.custom_sources import (
    CookieSource,
    HeaderSource,
    JsonSource,
    PathSource,
    PlainCookie,
    QuerySource,
    ReplyHeader,
    Source,
    SubprotocolSource,
)
from server_adapters.errors import AffinityError
from server_adapters.routes import Role, Routes, parse_route
from server_adapters.session_cookie import DEFAULT_MAX_AGE, CookieSettings, SessionCookie

SOURCES = ("cookie", "signed_cookie", "header", "query", "path", "json", "subprotocol")
REPLIES = ("response_header", "set_cookie", "issue_cookie", *BODIES, *FRAMES)
IDLE_SECONDS = 86400.0

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110: names of headers; RFC 6265: of cookies


class CustomOptions:
    """Reads the options; `errors` has what is wrong with them, and `build` may be called when nothing is."""

    def __init__(self, options: Mapping[str, Any], *, server: str = "") -> None:
        self.errors: list[AffinityError] = []
        self._server = server
        self._sources: list[Source] = []
        self._reply_headers: list[ReplyHeader] = []
        self._bodies: list[GivenOut] = []
        self._frames: list[GivenOut] = []
        self._issues: PlainCookie | None = None
        self._claims_unknown = options.get("unknown") == "claim"
        self._routes = self.routes(
            options,
            (
                ("starts", Role.STARTS),
                ("ends", Role.ENDS),
                ("lasts", Role.LASTS),
                ("stateless_routes", Role.STATELESS),
            ),
        )
        for index, entry in enumerate(options.get("sources") or ()):
            self._entry(f"sources[{index}]", entry, SOURCES, self._read_source)
        for index, entry in enumerate(options.get("replies") or ()):
            self._entry(f"replies[{index}]", entry, REPLIES, self._read_reply)
        self._gone = self._read_gone(options.get("gone") or {})
        if not self.errors:
            self._check_reachable()

    def routes(self, options: Mapping[str, Any], keys: tuple[tuple[str, int], ...]) -> Routes:
        """The routes that `keys` of the options list; stateless ones are of any method unless they say so."""
        routes, errors = read_routes(options, keys)
        self.errors += errors
        return routes

    def build(self, life: Life) -> Custom:
        """The adapter."""
        return Custom(
            self._sources,
            reply_headers=self._reply_headers,
            bodies=self._bodies,
            frames=self._frames,
            issues=self._issues,
            routes=self._routes,
            claims_unknown=self._claims_unknown,
            gone=self._gone,
            life=life,
        )

    def _entry(self, key: str, entry: object, kinds: tuple[str, ...], read: Callable[[str, str, Any], None]) -> None:
        if not isinstance(entry, Mapping) or len(entry) != 1 or (kind := next(iter(entry))) not in kinds:
            found = (
                f"a mapping of {', '.join(map(str, entry))}" if isinstance(entry, Mapping) and entry else repr(entry)
            )
            self.errors.append(AffinityError(key, found=found, expected=f"a mapping of one of {', '.join(kinds)}"))
            return
        try:
            read(f"{key}.{kind}", kind, entry[kind])
        except AffinityError as error:
            self.errors.append(error)

    def _read_source(self, key: str, kind: str, value: Any) -> None:
        match kind:
            case "cookie":
                self._sources.append(CookieSource(PlainCookie(token(key, value, "a cookie's name"))))
            case "signed_cookie":
                self._sources.append(CookieSource(self._signed(key, value)))
            case "header":
                self._sources.append(HeaderSource(token(key, value, "a header's name")))
            case "query":
                self._sources.append(QuerySource(text(key, value, "the name of a query parameter")))
            case "path":
                self._sources.append(PathSource(pattern(key, value)))
            case "subprotocol":
                self._sources.append(SubprotocolSource(_nth(key, value)))
            case _:
                self._sources.append(json_source(key, value))

    def _signed(self, key: str, value: Any) -> SessionCookie:
        known = {"name", "secret", "field", "max_age"}
        if not isinstance(value, Mapping) or not {"name", "secret", "field"} <= set(value) <= known:
            found = "the keys " + ", ".join(map(str, value)) if isinstance(value, Mapping) and value else repr(value)
            raise AffinityError(key, found=found, expected="a mapping of name, secret, field and, if need be, max_age")
        max_age = value.get("max_age", DEFAULT_MAX_AGE)
        if max_age is not None and (not isinstance(max_age, int) or isinstance(max_age, bool) or max_age <= 0):
            raise AffinityError(f"{key}.max_age", found=repr(max_age), expected="seconds, a whole number, or null")
        settings = CookieSettings(
            token(f"{key}.name", value["name"], "a cookie's name"),
            text(f"{key}.secret", value["secret"], "a text", secret=True),
            max_age,
        )
        field = text(f"{key}.field", value["field"], "the key of the session id in the cookie's data")
        return SessionCookie(settings, field=field, server=self._server)

    def _read_reply(self, key: str, kind: str, value: Any) -> None:
        if kind == "response_header":
            self._reply_headers.append(ReplyHeader(token(key, value, "a header's name")))
            return
        if kind in BODIES or kind in FRAMES:
            (self._bodies if kind in BODIES else self._frames).append(given_out(key, kind, value))
            return
        name = token(key, value, "a cookie's name")
        sources = [source for source in self._sources if isinstance(source, CookieSource)]
        known = next((source for source in sources if source.cookie.name == name), None)
        if kind == "set_cookie":
            # Cookies that are sources are looked for in replies as well: whoever can name a session must find it.
            if known is None:
                self._sources.append(CookieSource(PlainCookie(name)))
            return
        if self._issues is not None:
            raise AffinityError(key, found="a second issue_cookie", expected="one", do="leave one of them")
        if known is not None and isinstance(known.cookie, SessionCookie):
            raise AffinityError(
                key,
                found=f"{name}, which is a signed_cookie among the sources",
                expected="a cookie of the router's own",
                do="take another name",
            )
        self._issues = PlainCookie(name)
        issued = CookieSource(self._issues, issued=True)
        self._sources = [source for source in self._sources if source is not known]
        self._sources.append(issued)

    def _read_gone(self, given: Mapping[str, Any]) -> Gone:
        for name in given:
            if name not in ("status", "body"):
                self.errors.append(AffinityError(f"gone.{name}", found="an unknown key", expected="status or body"))
        status = given.get("status", Gone().status)
        if not isinstance(status, int) or isinstance(status, bool) or not 400 <= status <= 599:
            error = AffinityError("gone.status", found=repr(status), expected="an HTTP status from 400 to 599")
            self.errors.append(error)
            return Gone()
        return Gone(status, given.get("body"))

    def _check_reachable(self) -> None:
        """A config under which no session could ever be claimed is a mistake, and would lose them silently."""
        if not self._sources:
            self.errors.append(
                AffinityError(
                    "sources",
                    found="nothing",
                    expected=f"a list of at least one of {', '.join(SOURCES)}",
                    do="say where a request's session id is, or use preset none",
                )
            )
            return
        names_itself = any(isinstance(source, CookieSource) for source in self._sources)
        given_out_somewhere = self._reply_headers or self._bodies or self._frames
        if not (names_itself or given_out_somewhere or self._claims_unknown):
            self.errors.append(
                AffinityError(
                    "sources",
                    found="sources whose ids no reply gives out",
                    expected="a way for a session to get an owner",
                    do="say in `replies` where the app gives out new ids, or `unknown: claim` if its clients make them",
                )
            )


def read_routes(
    options: Mapping[str, Any], keys: tuple[tuple[str, int], ...], into: Routes | None = None
) -> tuple[Routes, list[AffinityError]]:
    """Add the routes that `keys` of the options list; a route without methods is POST, a stateless one is any."""
    routes = Routes() if into is None else into
    errors = []
    for key, role in keys:
        for index, given in enumerate(options.get(key) or ()):
            try:
                routes.add(
                    parse_route(given, methods=() if role == Role.STATELESS else ("POST",), key=f"{key}[{index}]"), role
                )
            except AffinityError as error:
                errors.append(error)
    return routes, errors


def text(key: str, value: Any, expected: str, *, secret: bool = False) -> str:
    """`value` when it is a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise AffinityError(key, found=type(value).__name__ if secret else repr(value), expected=expected)
    return value


def token(key: str, value: Any, expected: str) -> str:
    """`value` when it can be the name of a header or cookie."""
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise AffinityError(key, found=repr(value), expected=expected)
    return value


def pattern(key: str, value: Any) -> re.Pattern[str]:
    """`value` as a pattern with the group `session`."""
    expected = "a regular expression with (?P<session>...), which matches from the path's start"
    try:
        compiled = re.compile(text(key, value, expected))
    except re.error as error:
        raise AffinityError(key, found=f"{value!r} ({error})", expected=expected) from None
    if "session" not in compiled.groupindex:
        raise AffinityError(key, found=repr(value), expected=expected)
    return compiled


def json_source(key: str, value: Any) -> JsonSource:
    """A field of the bodies of given routes; bodies of all routes are not read, since each is then held whole."""
    expected = "a mapping of field or path, and routes"
    if (
        not isinstance(value, Mapping)
        or set(value) not in ({"field", "routes"}, {"path", "routes"})
        or not isinstance(value["routes"], list)
    ):
        raise AffinityError(key, found=repr(value), expected=expected, do="such as {field: id, routes: [POST /join]}")
    routes = Routes()
    for index, given in enumerate(value["routes"]):
        routes.add(parse_route(given, methods=("POST",), key=f"{key}.routes[{index}]"), Role.BODY)
    if "path" in value:
        return JsonSource(json_path(f"{key}.path", value["path"]), routes)
    return JsonSource((json_name(f"{key}.field", value["field"]),), routes)


def _nth(key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise AffinityError(key, found=repr(value), expected="which of the subprotocols it is: 1, 2, 3, ...")
    return value
