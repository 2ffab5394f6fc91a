"""Routes as the config writes them."""

from __future__ import annotations

import pytest

from server_adapters.errors import AffinityError
from server_adapters.routes import Role, Routes, parse_route


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("/a", ["POST /a"], ["GET /a", "POST /a/", "POST /a/b", "POST /"]),
        ("GET /a", ["GET /a"], ["POST /a"]),
        ("GET,POST /a", ["GET /a", "POST /a"], ["DELETE /a"]),
        ("GET, POST  /a", ["GET /a", "POST /a"], ["DELETE /a"]),
        ("* /a", ["GET /a", "POST /a", "WEBSOCKET /a"], ["GET /b"]),
        ("WEBSOCKET /ws", ["WEBSOCKET /ws"], ["GET /ws"]),
        ("DELETE /s/{id}", ["DELETE /s/1", "DELETE /s/x.y"], ["DELETE /s/", "DELETE /s/1/2", "POST /s/1"]),
        ("/s/{id}/end", ["POST /s/1/end"], ["POST /s/1", "POST /s/1/2/end"]),
        ("/a/*", ["POST /a", "POST /a/", "POST /a/b/c", "POST /a/\n"], ["POST /ab", "GET /a/b"]),
        ("/*", ["POST /", "POST /x/y"], ["GET /"]),
        ("* /a.b/{x}/*", ["GET /a.b/1", "GET /a.b/1/2"], ["GET /aXb/1", "GET /a.b"]),
        ("/", ["POST /"], ["POST /a"]),
    ],
)
def test_what_a_route_matches(text: str, matching: list[str], others: list[str]) -> None:
    """Methods, segments and everything below; POST where a route names no method."""
    routes = Routes()
    routes.add(parse_route(text, methods=("POST",), key="k"), Role.STARTS)
    assert [line for line in matching + others if routes.find(*line.split(" ", 1))] == matching


@pytest.mark.parametrize(
    "text", ["a", "", "POST", "POST a", "post /a", "POST,, /a", 7, None, {"path": "/a"}, "POST /a b"]
)
def test_what_is_no_route(text: object) -> None:
    """The error names the key and shows what was found."""
    with pytest.raises(AffinityError) as caught:
        parse_route(text, methods=("POST",), key="session_starts[1]")
    assert caught.value.key == "session_starts[1]"
    assert repr(text) in str(caught.value)


def test_roles_add_up() -> None:
    """What the config adds stands beside what the preset has."""
    routes = Routes()
    for text, role in [("/a", Role.STARTS), ("* /a", Role.BODY), ("/a", Role.ENDS), ("/{x}", Role.STATELESS)]:
        routes.add(parse_route(text, methods=("POST",), key="k"), role)
    assert routes.find("POST", "/a") == Role.STARTS | Role.BODY | Role.ENDS | Role.STATELESS
    assert routes.find("GET", "/a") == Role.BODY
    assert routes.find("POST", "/b") == Role.STATELESS
