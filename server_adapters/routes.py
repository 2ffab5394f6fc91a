"""Routes that mean something for a session: a table from method and path to what they mean.

A route is written `/path`, `POST /path` or `GET,POST /path`. The method `*` is any, `WEBSOCKET` the opening of one.
`{name}` in a path stands for one segment, and `/*` at its end for everything below.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from server_adapters.errors import AffinityError

ROUTE_FORM = "a route such as /path, `POST /path` or `GET,POST /path/{id}`"

_METHOD = re.compile(r"[A-Z]+|\*")
_SEGMENT = re.compile(r"\{\w*\}")


class Role:
    """What a route does to its request's session: bits, as the adapters combine them.

    Plain numbers: the operators of an enum's flags would cost as much as the whole look-up.
    """

    STARTS: Final = 1
    ENDS: Final = 2
    STATELESS: Final = 4
    BODY: Final = 8
    """The id may be in the body."""
    REPLY_BODY: Final = 16
    """The reply's body may say that the session has ended."""
    LASTS: Final = 64
    """The session lives as long as such a request."""
    MAY_STAY: Final = 32
    """Ends the session unless a header says that a close follows."""


class Route(NamedTuple):
    """One route: methods (empty: any) and path; `pattern` is set where the path is not one literal."""

    methods: frozenset[str]
    path: str
    pattern: re.Pattern[str] | None


def parse_route(text: object, *, methods: Iterable[str], key: str) -> Route:
    """Read a route; `methods` are those of a route that names none.

    Raises:
        AffinityError: it is none; `key` says where it was.

    """
    wrong = AffinityError(key, found=repr(text), expected=ROUTE_FORM)
    if not isinstance(text, str):
        raise wrong
    named, space, path = text.strip().rpartition(" ")
    found = frozenset(part.strip() for part in named.split(",")) if space else frozenset(methods)
    if not path.startswith("/") or not all(_METHOD.fullmatch(method) for method in found):
        raise wrong
    if "*" in found:
        found = frozenset()
    below = path.endswith("/*")
    literal = path[:-2] if below else path
    if not below and not _SEGMENT.search(literal):
        return Route(found, path, None)
    parts = [re.escape(part) for part in _SEGMENT.split(literal)]
    return Route(found, path, re.compile("[^/]+".join(parts) + ("(?:/.*)?" if below else ""), re.DOTALL))


class Routes:
    """Finds what a request's route means, in one dict look-up where no route has a pattern."""

    def __init__(self) -> None:
        self._exact: dict[str, dict[str, int]] = {}
        self._patterns: list[tuple[Route, int]] = []

    def add(self, route: Route, role: int) -> None:
        """Let `route` mean `role`, beside what it means already."""
        if route.pattern is not None:
            self._patterns.append((route, role))
            return
        by_method = self._exact.setdefault(route.path, {})
        for method in route.methods or ("*",):
            by_method[method] = by_method.get(method, 0) | role

    def find(self, method: str, path: str) -> int:
        """What the route means, as the sum of its Roles; 0: nothing. `method` is WEBSOCKET for one."""
        by_method = self._exact.get(path)
        roles = 0 if by_method is None else by_method.get(method, 0) | by_method.get("*", 0)
        for route, role in self._patterns:
            assert route.pattern is not None
            if (not route.methods or method in route.methods) and route.pattern.fullmatch(path):
                roles |= role
        return roles
