"""Ids in session cookies: which cookie counts, what an id that nobody claims means, and two ids in one request."""

from __future__ import annotations

from conformance.script import (
    CLOSE,
    NOBODY,
    SEED,
    TOOL,
    Ask,
    Case,
    Held,
    Later,
    Mark,
    NothingNew,
    T,
    Together,
)

CASES = [
    Case(
        "cookie",
        "a seed's session belongs to the worker that ran it, wherever later requests land",
        [
            Ask(0, SEED, ran=0, save="a"),
            Held("a", 0),
            Ask(1, TOOL, cookie="a", ran=0, same="a", save="b", count=2),
            Ask(2, TOOL, cookie="a", ran=0, same="a", count=3),
            Ask(0, TOOL, cookie="a", ran=0, same="a", count=4),
            Held("a", 0),
        ],
    ),
    Case(
        "cookie",
        "the key is the id in the cookie, not its value: each reply signs it anew, and the old ones stay good",
        [
            Ask(0, SEED, ran=0, save="a"),
            Ask(1, TOOL, cookie="a", ran=0, save="b"),
            Ask(2, TOOL, cookie="b", ran=0, count=3),
            Ask(2, TOOL, cookie="a", ran=0, count=4),
        ],
    ),
    Case(
        "cookie",
        "every method and status keeps the session of the cookie it came with",
        [
            Ask(0, SEED, ran=0, save="a"),
            Ask(1, "GET /", cookie="a", ran=0, same="a"),
            Ask(1, "GET /nowhere", cookie="a", status=404, ran=0, same="a"),
            Ask(1, "GET /verify", cookie="a", status=405, ran=0, same="a"),
            Ask(1, "POST /moved", cookie="a", status=307, ran=0, same="a"),
            Ask(1, "POST /no_such_route", cookie="a", status=404, ran=0, same="a"),
            Ask(1, TOOL, cookie="a", body={"status": 422}, status=422, ran=0, same="a"),
            Ask(1, TOOL, cookie="a", body={"raise": True}, status=500, leaves=True),
            Ask(2, TOOL, cookie="a", ran=0, count=3),
        ],
    ),
    Case(
        "cookie",
        "a double-quoted value works",
        [Ask(0, SEED, ran=0, save="a"), Ask(1, TOOL, raw='{name}="{a}"', ran=0, same="a")],
    ),
    Case(
        "cookie",
        "of one cookie name twice the last wins, and that is no conflict",
        [
            Ask(0, SEED, body={T: "twice-1"}, ran=0, save="a"),
            Ask(1, SEED, ran=1, save="b"),
            Ask(2, TOOL, raw="{name}={b}; {name}={a}", ran=0, same="a"),
            Ask(2, TOOL, raw="{name}={a}; {name}={b}", ran=1, same="b"),
            Ask(2, CLOSE, raw="{name}={b}; {name}={a}", body={T: "twice-1"}, ran=0),
        ],
    ),
    Case(
        "cookie",
        "other servers' cookies of the same shape beside it are left alone",
        [
            Ask(0, SEED, ran=0, save="a"),
            Ask(1, SEED, ran=1, save="b"),
            Ask(2, TOOL, raw="SimpleAgent___agent={b}; {name}={a}; x{name}={b}", ran=0, same="a"),
            Ask(2, TOOL, raw="SimpleAgent___agent={a}", ran=2, save="c"),
            Held("c", 2),
        ],
    ),
    Case(
        "cookie",
        "a cookie with a bad signature is a new session, not an error",
        [Ask(0, TOOL, cookie="!forged", ran=0, save="a"), Held("forged", NOBODY), Held("a", 0)],
    ),
    Case(
        "cookie",
        "an old cookie with a worker id in it is read for the session alone",
        [
            Ask(1, TOOL, cookie="=old-w", data={"worker_id": 0, "worker": 2}, ran=1, same="old-w"),
            Held("old-w", 1),
            Ask(0, TOOL, cookie="=old-w", data={"worker_id": 0}, ran=1, count=2),
        ],
    ),
    Case(
        "unclaimed",
        "a valid id that nobody claims is claimed by the first worker that sees it",
        [
            Ask(1, TOOL, cookie="=old-1", ran=1, same="old-1"),
            Held("old-1", 1),
            Ask(0, TOOL, cookie="=old-1", ran=1),
            Later("old-1"),
        ],
    ),
    Case(
        "unclaimed",
        "on several workers at once one of them claims a valid id and the others relay",
        [
            Together([Ask(number, TOOL, cookie="=old-2", same="old-2") for number in range(3)]),
            Together([Ask(number, "GET /read", cookie="=old-3", same="old-3") for number in range(3)]),
        ],
    ),
    Case(
        "unclaimed",
        "an id that nobody claimed is let go when neither the reply nor a start keeps it",
        [Mark(), Ask(1, TOOL, cookie="=old-4", body={"raise": True}, status=500), NothingNew()],
    ),
    Case(
        "one id",
        "two ids are refused before the app sees anything",
        [
            Ask(0, SEED, ran=0, save="a"),
            Ask(1, SEED, cookie="a", body={T: "ep-3"}, ran=NOBODY, status=409, error="session_conflict", keeps=True),
            Ask(0, CLOSE, cookie="a", body={T: "ep-3"}, ran=NOBODY, status=409, error="session_conflict", keeps=True),
            Ask(2, SEED, cookie="=old-5", body={T: "ep-3"}, ran=NOBODY, status=409, error="session_conflict"),
            Held("ep-3", NOBODY),
            Held("old-5", NOBODY),
            Ask(1, TOOL, cookie="a", ran=0, count=2),
        ],
    ),
]
