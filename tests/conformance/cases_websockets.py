"""The session rule of WebSockets: that of requests, from the handshake on."""

from __future__ import annotations

from typing import Any

from conformance.script import (
    NOBODY,
    SEED,
    TOOL,
    VERIFY,
    Ask,
    Case,
    Held,
    Kill,
    Later,
    Mark,
    NothingNew,
    Open,
    Together,
)

SOCKET = "WEBSOCKET /socket"
PLAY = "WEBSOCKET /play"
STARTS: dict[str, Any] = {"session_starts": [PLAY], "session_ends": ["WEBSOCKET /finish"]}


def opens(on: int, route: str = SOCKET, **expected: Any) -> Ask:
    """A WebSocket that is accepted."""
    return Ask(on, route, status=101, **expected)


CASES = [
    Case(
        "websockets",
        "a WebSocket on the wrong worker is served by the session's owner",
        [
            Ask(0, SEED, ran=0, save="a", count=1),
            opens(1, cookie="a", ran=0, count=2),
            opens(0, cookie="a", ran=0, count=3),
            Ask(2, TOOL, cookie="a", ran=0, count=4),
            Held("a", 0),
        ],
    ),
    Case(
        "websockets",
        "one without an id runs where it lands and leaves nothing",
        [Mark(), opens(1, ran=1, leaves=True), opens(2, ran=2), NothingNew()],
    ),
    Case(
        "websockets",
        "an id of long ago that is vouched for is claimed where it lands; one that is not is no id",
        [
            opens(1, cookie="=ws-old", ran=1),
            Held("ws-old", 1),
            opens(2, cookie="!ws-bad", ran=2),
            Held("ws-bad", NOBODY),
        ],
    ),
    Case(
        "websockets",
        "several for one unclaimed id at once run on one worker",
        [Together([opens(0, cookie="=ws-many"), opens(1, cookie="=ws-many"), opens(2, cookie="=ws-many")])],
    ),
    Case(
        "websockets",
        "one of a lost session gets the gone reply in place of the accept",
        [
            Ask(0, SEED, ran=0, save="a"),
            opens(1, cookie="a", ran=0),
            Kill(0),
            Ask(1, SOCKET, cookie="a", status=410, error="session_gone", ran=NOBODY, keeps=True),
            Ask(2, PLAY, cookie="a", status=410, error="session_gone", ran=NOBODY),
        ],
    ),
    Case(
        "websockets",
        "a start by WebSocket is placed, its new id is claimed before the accept leaves, and every worker finds it",
        [
            opens(0, PLAY, ran=0, save="a", count=1),
            opens(0, PLAY, ran=1, save="b", count=1),
            opens(0, PLAY, ran=2, save="c", count=1),
            Open(0, 1),
            Open(1, 1),
            Open(2, 1),
            Held("a", 0),
            Held("b", 1),
            Held("c", 2),
            opens(2, cookie="b", ran=1, count=2),
            Ask(0, TOOL, cookie="c", ran=2, count=2),
        ],
        placement="least_sessions",
        affinity=STARTS,
    ),
    Case(
        "websockets",
        "an id in the accept that another worker holds is withheld: 409",
        [
            Ask(0, SEED, ran=0, save="a"),
            Ask(1, SEED, body={"resources_session_id": "ws-taken"}, ran=1),
            Ask(0, f"{PLAY}?to=ws-taken", cookie="a", status=409, error="session_conflict", ran=NOBODY),
            Ask(2, f"{PLAY}?to=ws-taken", cookie="a", status=409, error="session_conflict", ran=NOBODY),
            opens(1, f"{PLAY}?to=ws-moved", cookie="a", ran=0, same="ws-moved", save="b"),
            Held("ws-moved", 0),
        ],
    ),
    Case(
        "websockets",
        "an end by WebSocket ends its session, as a request does",
        [
            Ask(0, SEED, ran=0, save="a"),
            Ask(1, SEED, ran=1, save="b"),
            opens(1, "WEBSOCKET /finish", cookie="a", ran=0),
            Ask(1, VERIFY, cookie="b", ran=1),
            Later("a"),
            Later("b"),
        ],
        affinity=STARTS,
    ),
    Case(
        "websockets",
        "one that the app refuses is 403, from wherever it comes",
        [
            Ask(0, SEED, ran=0, save="a"),
            Ask(0, "WEBSOCKET /refuse", cookie="a", status=403),
            Ask(1, "WEBSOCKET /refuse", cookie="a", status=403),
            Held("a", 0),
        ],
    ),
]
