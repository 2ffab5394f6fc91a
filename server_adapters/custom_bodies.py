"""Where preset custom finds ids that a server gives out inside replies and WebSocket frames, as the config says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from server_adapters.errors import AffinityError
from server_adapters.finders import BodyJson, EventStream, Finder, FrameJson, FramePattern
from server_adapters.heads import RequestHead
from server_adapters.json_paths import Path, path_of
from server_adapters.routes import Routes, parse_route

BODIES = ("body_json", "body_event")
FRAMES = ("frame_json", "frame_pattern")

_NAME = re.compile(r'[^"\\\x00-\x1f]+')  # what msgspec takes for a name in JSON
_PATH = "names with dots between them, such as result.id"
_PATTERN = "a regular expression with (?P<session>...)"
_ROUTES = "a list of routes"
_MAY_HAVE: Mapping[str, frozenset[str]] = {
    "body_json": frozenset({"path", "prefix", "routes"}),
    "body_event": frozenset({"event", "pattern", "routes"}),
    "frame_json": frozenset({"path", "prefix", "routes"}),
    "frame_pattern": frozenset({"pattern", "routes"}),
}
_MUST_HAVE: Mapping[str, frozenset[str]] = {
    "body_json": frozenset({"path", "routes"}),
    "body_event": frozenset({"pattern", "routes"}),
    "frame_json": frozenset({"path"}),
    "frame_pattern": frozenset({"pattern"}),
}


class GivenOut(msgspec.Struct, frozen=True):
    """An id inside what a server sends: `make` is a finder for one reply or WebSocket; None: on any route."""

    make: Callable[[], Finder]
    routes: Routes | None

    def finder(self, head: RequestHead) -> Finder | None:
        """A finder for the answer to this request, if it is one that gives out ids."""
        method = "WEBSOCKET" if head.websocket else head.method
        return self.make() if self.routes is None or self.routes.find(method, head.path) else None


def given_out(key: str, kind: str, value: Any) -> GivenOut:
    """Read an entry of `replies`; `key` is where it stands.

    Raises:
        AffinityError: it is none.

    """
    expected = f"a mapping of {', '.join(sorted(_MAY_HAVE[kind]))}"
    if not isinstance(value, Mapping) or not _MUST_HAVE[kind] <= set(value) <= _MAY_HAVE[kind]:
        raise AffinityError(key, found=repr(value), expected=expected)
    frames = kind in FRAMES
    routes = _routes(f"{key}.routes", value["routes"], frames=frames) if "routes" in value else None
    if "path" in value:
        path, prefix = json_path(f"{key}.path", value["path"]), _text(f"{key}.prefix", value.get("prefix", ""))
        kind_of = FrameJson if frames else BodyJson
        return GivenOut(lambda: kind_of(path, prefix=prefix), routes)
    pattern = _pattern(f"{key}.pattern", value["pattern"])
    if frames:
        return GivenOut(lambda: FramePattern(pattern), routes)
    event = _text(f"{key}.event", value.get("event", "message"))

    def read(name: bytes, data: bytes) -> str | None:
        match = pattern.search(data) if name == event else None
        return None if match is None else match["session"].decode("utf-8", "replace")

    return GivenOut(lambda: EventStream(read), routes)


def json_path(key: str, value: Any) -> Path:
    """`value` when it is a path into JSON."""
    if not isinstance(value, str) or not all(map(_NAME.fullmatch, path_of(value))):
        raise AffinityError(key, found=repr(value), expected=_PATH)
    return path_of(value)


def json_name(key: str, value: Any) -> str:
    """`value` when it is the name of a field of a JSON object."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise AffinityError(key, found=repr(value), expected="the name of a field")
    return value


def _text(key: str, value: Any) -> bytes:
    if not isinstance(value, str):
        raise AffinityError(key, found=repr(value), expected="a text")
    return value.encode()


def _pattern(key: str, value: Any) -> re.Pattern[bytes]:
    # Each character stands for the byte of its number, so that frames of bytes can be described.
    try:
        compiled = re.compile(value.encode("latin-1"), re.DOTALL)
    except (re.error, AttributeError, UnicodeEncodeError) as error:
        raise AffinityError(key, found=f"{value!r} ({error})", expected=_PATTERN) from None
    if "session" not in compiled.groupindex:
        raise AffinityError(key, found=repr(value), expected=_PATTERN)
    return compiled


def _routes(key: str, value: Any, *, frames: bool) -> Routes:
    if not isinstance(value, list) or not value:
        raise AffinityError(key, found=repr(value), expected=_ROUTES)
    routes = Routes()
    for index, given in enumerate(value):
        routes.add(parse_route(given, methods=("WEBSOCKET",) if frames else ("POST",), key=f"{key}[{index}]"), 1)
    return routes
