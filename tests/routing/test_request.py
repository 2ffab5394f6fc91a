"""A request's head as adapters see it, and whether the app's routing knew the request."""

from __future__ import annotations

from typing import Any

import pytest

from server_adapters.adapter import Reading
from supervisor.routing.request import Request, request_head


def scope(path: str, root_path: str = "", **more: Any) -> dict[str, Any]:
    """An ASGI scope."""
    return {"type": "http", "method": "POST", "path": path, "root_path": root_path, "headers": [], **more}


@pytest.mark.parametrize(
    ("path", "root_path", "expected"),
    [
        ("/api/verify", "/api", "/verify"),
        ("/api", "/api", ""),
        ("/verify", "/api", "/verify"),
        ("/apiary/verify", "/api", "/apiary/verify"),
        ("/verify", "", "/verify"),
        ("/api/v1/verify", "/api/v1", "/verify"),
    ],
)
def test_the_path_is_the_one_below_root_path(path: str, root_path: str, expected: str) -> None:
    """As Starlette takes it off: whole segments."""
    assert request_head(scope(path, root_path)).path == expected


@pytest.mark.parametrize(
    ("seen", "unrouted"),
    [({}, False), ({"router": object()}, True), ({"router": object(), "endpoint": object()}, False)],
    ids=["another routing than Starlette's", "no route", "a route"],
)
def test_whether_the_routing_knew_the_request(seen: dict[str, Any], unrouted: bool) -> None:
    """Starlette leaves its router in the scope, and the endpoint once a route has matched."""
    head = request_head(scope("/"))
    request = Request(head, Reading(), scope("/", **seen), None, None)  # type: ignore[arg-type]
    assert request.unrouted is unrouted
