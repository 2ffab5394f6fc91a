"""How sessions come to be, what leaves none, and ids that change."""

from __future__ import annotations

from conformance.script import (
    CLOSE,
    NOBODY,
    SEED,
    TOOL,
    VERIFY,
    Ask,
    Case,
    Held,
    HeldByOne,
    Kill,
    Later,
    Leave,
    Mark,
    NothingNew,
    Open,
    T,
)

NEW = [
    Case(
        "new ids",
        "a session started by a tool call without any seed is claimed as well",
        [Ask(1, TOOL, ran=1, save="a"), Held("a", 1), Ask(0, TOOL, cookie="a", ran=1, count=2), Later("a")],
    ),
    Case(
        "new ids",
        "the router's id goes into a valid cookie that has none, and what that holds stays",
        [Ask(1, TOOL, cookie="=", data={"basket": [1]}, ran=1, save="a", has={"basket": [1]}), Held("a", 1)],
    ),
    Case(
        "new ids",
        "an error of a handler gives a session out too",
        [
            Ask(0, TOOL, body={"status": 422}, status=422, ran=0, save="a"),
            Held("a", 0),
            Ask(1, "POST /missing", status=404, ran=1, save="b"),
            Held("b", 1),
        ],
    ),
    Case(
        "new ids",
        "an id that its reply does not carry is let go at once",
        [
            Mark(),
            Ask(0, TOOL, body={"raise": True}, status=500, leaves=True),
            Ask(1, "POST /clear", ran=1),
            Ask(1, "POST /forget", ran=1),
            NothingNew(),
        ],
    ),
    Case(
        "new ids",
        "an id that the app changes in the very first reply is claimed in its place",
        [Ask(1, "POST /rotate", body={"to": "fresh-1"}, ran=1, same="fresh-1"), Held("fresh-1", 1)],
    ),
    Case(
        "placement",
        "new sessions go to the worker with the fewest open ones, whoever accepts them",
        [
            Ask(1, SEED, ran=1, save="a"),
            Ask(1, SEED, ran=0, save="b"),
            Ask(1, SEED, ran=2, save="c"),
            Ask(1, TOOL, ran=1),
            Ask(0, SEED, ran=0, body={T: "place-1"}),
            Ask(0, SEED, ran=2, body={T: "place-2"}),
            Ask(0, VERIFY, cookie="c", ran=2),
            Open(2, 1),
            Ask(0, "POST /reset", ran=2),
            Ask(1, SEED, body={T: "place-1"}, ran=0),
        ],
        placement="least_sessions",
    ),
    Case(
        "placement",
        "a placed start that fails keeps its claim where it ran",
        [
            Ask(1, SEED, ran=1),
            Ask(1, SEED, body={T: "place-3", "status": 500}, status=500, ran=0),
            Held("place-3", 0),
            Ask(2, CLOSE, body={T: "place-3"}, ran=0),
            Later("place-3"),
        ],
        placement="least_sessions",
    ),
]

NOTHING = [
    Case(
        "leaves nothing",
        "GET, HEAD and OPTIONS without an id leave no claim and no cookie",
        [
            Mark(),
            Ask(0, "GET /", ran=0, leaves=True),
            Ask(0, "GET /nowhere", status=404, leaves=True),
            Ask(0, "GET /no_such_route", status=404, leaves=True),
            Ask(0, "GET /read", leaves=True),
            Ask(0, "GET /", cookie="!forged", leaves=True),
            Ask(0, "HEAD /", leaves=True),
            Ask(0, "OPTIONS /verify", status=405, leaves=True),
            Ask(0, "GET /verify", status=405, leaves=True),
            NothingNew(),
        ],
    ),
    Case(
        "leaves nothing",
        "what reaches no handler leaves nothing: 405, 307, and 404 of the routing, on starts too",
        [
            Mark(),
            Ask(0, "POST /read", status=405, leaves=True),
            Ask(0, "DELETE /read", status=405, leaves=True),
            Ask(0, "POST /moved", status=307, leaves=True),
            Ask(0, "POST /seed_session/", status=307, leaves=True),
            Ask(0, "POST /no_such_route", status=404, leaves=True),
            Ask(0, "PUT /no_such_route", status=404, leaves=True),
            NothingNew(),
        ],
    ),
    Case(
        "leaves nothing",
        "a start that reaches no handler starts nothing",
        [
            Mark(),
            Ask(0, "POST /read", status=405, leaves=True),
            Ask(0, "POST /moved", status=307, leaves=True),
            Ask(0, "POST /no_such_route", status=404, leaves=True),
            NothingNew(),
            Ask(1, "POST /read", cookie="=known-1", status=405, same="known-1"),
            Held("known-1", 1),
        ],
        affinity={"session_starts": ["/read", "/moved", "/no_such_route"]},
    ),
    Case(
        "leaves nothing",
        "the stateless routes leave nothing; an id that somebody holds still leads to its owner",
        [
            Mark(),
            Ask(0, "POST /aggregate_metrics", ran=0, leaves=True),
            Ask(0, "POST /aggregate_metrics", cookie="=nobody-1", ran=0, leaves=True),
            NothingNew(),
            Ask(1, SEED, ran=1, save="a"),
            Ask(0, "POST /aggregate_metrics", cookie="a", ran=1, same="a"),
        ],
    ),
    Case(
        "leaves nothing",
        "the stateless routes of the config replace the default",
        [
            Mark(),
            Ask(0, "POST /dump", ran=0, leaves=True),
            NothingNew(),
            Ask(0, "POST /aggregate_metrics", ran=0, save="a"),
            Held("a", 0),
        ],
        affinity={"stateless_routes": ["/dump"]},
    ),
    Case(
        "leaves nothing",
        "/mcp without a token leaves nothing; its cookie leads to the owner, and claims nothing",
        [
            Mark(),
            Ask(0, "POST /mcp", ran=0, leaves=True),
            Ask(0, "POST /mcp/", ran=0, leaves=True),
            Ask(0, "GET /mcp", status=405, leaves=True),
            Ask(0, "POST /mcp", cookie="=nobody-2", ran=0, leaves=True),
            NothingNew(),
            Ask(1, SEED, ran=1, save="a"),
            Ask(0, "POST /mcp", cookie="a", ran=1, same="a"),
        ],
    ),
    Case(
        "leaves nothing",
        "a client that goes away in the middle of its body: the app is not run, nothing is claimed",
        [
            Mark(),
            Leave(Ask(0, SEED, body={T: "left-1"}), in_body=True),
            Leave(Ask(0, CLOSE, body={T: "left-1"}), in_body=True),
            NothingNew(),
            Held("left-1", NOBODY),
        ],
    ),
]

CHANGES = [
    Case(
        "changes",
        "an id that changes in a reply is claimed by the worker that ran the app, and the old one ends",
        [
            Ask(0, SEED, ran=0, save="a"),
            Ask(1, "POST /rotate", cookie="a", body={"to": "new-1"}, ran=0, save="b"),
            Held("new-1", 0),
            Ask(2, TOOL, cookie="b", ran=0),
            Later("a"),
        ],
    ),
    Case(
        "changes",
        "an id that changes to one that another worker holds: 409 for the reply, and all stays as it was",
        [
            Ask(1, SEED, body={T: "ep-8"}, ran=1),
            Ask(0, SEED, ran=0, save="a"),
            Ask(0, "POST /rotate", cookie="a", body={"to": "ep-8"}, status=409, error="session_conflict", keeps=True),
            Ask(2, "POST /rotate", cookie="a", body={"to": "ep-8"}, status=409, error="session_conflict", keeps=True),
            Held("ep-8", 1),
            Ask(2, TOOL, cookie="a", ran=0, count=2),
        ],
    ),
    Case(
        "changes",
        "a new session that the app names so is refused with 409, and its client learns of none",
        [
            Ask(1, SEED, body={T: "ep-16"}, ran=1),
            Mark(),
            Ask(0, "POST /rotate", body={"to": "ep-16"}, status=409, error="session_conflict", leaves=True),
            NothingNew(),
        ],
    ),
    Case(
        "changes",
        "an id that changes to one whose worker is gone: 409 too",
        [
            Ask(1, SEED, body={T: "ep-17"}, ran=1),
            Ask(0, SEED, ran=0, save="a"),
            Kill(1),
            Ask(0, "POST /rotate", cookie="a", body={"to": "ep-17"}, status=409, error="session_conflict"),
            Held("ep-17", "gone"),
        ],
    ),
    Case(
        "changes",
        "a cookie that a reply expires, or that has no id any more, ends the session",
        [
            Ask(0, SEED, ran=0, save="a"),
            Ask(1, "POST /clear", cookie="a", ran=0),
            Ask(1, SEED, ran=1, save="b"),
            Ask(0, "POST /forget", cookie="b", ran=1),
            Later("a"),
            Later("b"),
        ],
    ),
]

GONE = [
    Case(
        "gone",
        "the sessions of a dead worker are gone for everybody, with the cookie in the reply",
        [
            Ask(0, SEED, ran=0, save="a"),
            Ask(1, SEED, ran=1, save="b"),
            Kill(0),
            Ask(1, TOOL, cookie="a", ran=NOBODY, status=410, error="session_gone", keeps=True),
            Ask(2, SEED, cookie="a", ran=NOBODY, status=410, error="session_gone", keeps=True),
            Ask(2, "GET /", cookie="a", ran=NOBODY, status=410, error="session_gone", keeps=True),
            Ask(2, TOOL, cookie="b", ran=1),
            Held("a", "gone"),
        ],
    ),
    Case(
        "gone",
        "a typed seed or close of a gone id is refused too, and a token's",
        [
            Ask(0, SEED, body={T: "ep-g"}, ran=0),
            Kill(0),
            Ask(1, SEED, body={T: "ep-g"}, ran=NOBODY, status=410, error="session_gone", leaves=True),
            Ask(2, CLOSE, body={T: "ep-g"}, ran=NOBODY, status=410, error="session_gone"),
            Ask(2, "POST /mcp", token="ep-g", ran=NOBODY, status=410, error="session_gone"),
            Held("ep-g", "gone"),
        ],
    ),
    Case(
        "full",
        "claims that never started may use half the room; starts the rest; then 503, and no live claim is thrown out",
        [
            Ask(0, SEED, body={T: "full-1"}, ran=0, save="a"),
            Ask(0, TOOL, cookie="=full-2", ran=0),
            Ask(1, TOOL, cookie="=full-3", ran=1),
            Ask(2, TOOL, ran=NOBODY, status=503, error="table_full", leaves=True),
            Ask(2, TOOL, cookie="=full-4", ran=NOBODY, status=503, error="table_full", keeps=True),
            Ask(2, SEED, body={T: "full-5"}, ran=2),
            Ask(1, SEED, body={T: "full-6"}, ran=NOBODY, status=503, error="table_full"),
            Ask(1, SEED, ran=NOBODY, status=503, error="table_full", leaves=True),
            Ask(1, TOOL, cookie="a", ran=0, count=2),
            HeldByOne("full-5"),
            Later("full-2"),
            Later("full-3"),
            Ask(1, SEED, body={T: "full-6"}, ran=1),
        ],
        max_sessions=4,
    ),
]

CASES = [*NEW, *NOTHING, *CHANGES, *GONE]
