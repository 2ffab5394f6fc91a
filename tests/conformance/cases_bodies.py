"""Ids in the bodies of seeds and closes, routes below prefixes, and ids in MCP tokens."""

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
    Later,
    Mark,
    NothingNew,
    T,
    Together,
)

MANY_TOOLS = {"tools": [f"tool_{number}" for number in range(200)]}

TYPED = [
    Case(
        "typed",
        "a typed seed, its calls and its close name one id",
        [
            Ask(0, SEED, body={T: "ep-1"}, ran=0, save="a", same="ep-1"),
            Held("ep-1", 0),
            Ask(1, TOOL, cookie="a", ran=0, same="a", count=2),
            Ask(2, CLOSE, body={T: "ep-1"}, ran=0, same="a", count=3),
            Later("ep-1"),
        ],
    ),
    Case(
        "typed",
        "a typed seed on a second worker goes to the first",
        [
            Ask(0, SEED, body={T: "ep-2"}, ran=0, count=1),
            Ask(1, SEED, body={T: "ep-2"}, ran=0, same="ep-2", count=2),
            Held("ep-2", 0),
        ],
    ),
    Case(
        "typed",
        "typed seeds of one id on several workers at once are run by one",
        [Together([Ask(number, SEED, body={T: "ep-race"}, same="ep-race") for number in range(3)])],
    ),
    Case(
        "typed",
        "a seed and a close of one id at once, on two workers, are run by one",
        [
            Together(
                [
                    Ask(0, SEED, body={T: "ep-both", "wait": 0.1}, same="ep-both"),
                    Ask(1, TOOL, cookie="=ep-both", same="ep-both"),
                    Ask(2, "GET /read", cookie="=ep-both", same="ep-both"),
                ]
            ),
            Ask(1, CLOSE, body={T: "ep-both"}),
            Later("ep-both"),
        ],
    ),
    Case(
        "typed",
        "what is no text of a JSON object's top level makes a seed untyped",
        [
            Ask(0, SEED, body={T: ""}, ran=0, save="a"),
            Ask(1, SEED, body={T: 7}, ran=1, save="b"),
            Ask(2, SEED, body=[{T: "ep-no"}], ran=2, save="c"),
            Ask(2, SEED, body={"inner": {T: "ep-no"}}, ran=2, save="d"),
            Ask(2, SEED, body=b'{"resources_session_id": "ep-no"', ran=2, save="e"),
            Ask(2, SEED, body=b"\xff\xfe\x00", ran=2, save="f"),
            Held("a", 0),
            Held("b", 1),
            Held("c", 2),
            Held("f", 2),
            Held("ep-no", NOBODY),
        ],
    ),
    Case(
        "typed",
        "a typed body counts on seed and close alone",
        [Ask(1, TOOL, body={T: "ep-no-2"}, ran=1, save="a"), Held("ep-no-2", NOBODY), Held("a", 1)],
    ),
    Case(
        "typed",
        "a seed and a close of 9 MiB are routed like any other",
        [
            Ask(0, SEED, body={T: "ep-big"}, pad=9 << 20, ran=0, same="ep-big"),
            Ask(1, SEED, body={T: "ep-big"}, pad=9 << 20, ran=0, count=2),
            Ask(2, CLOSE, body={T: "ep-big"}, pad=9 << 20, ran=0, count=3),
        ],
    ),
    Case(
        "rollout",
        "under a rollout prefix the routes mean the same",
        [
            Ask(0, "POST /ng-rollout/r-1.x/seed_session", ran=0, save="a"),
            Ask(1, "POST /ng-rollout/r-1.x/increment_counter", cookie="a", ran=0),
            Ask(2, "POST /ng-rollout/other/verify", cookie="a", ran=0),
            Later("a"),
        ],
    ),
    Case(
        "rollout",
        "typed seeds and closes, tokens and two ids are the same under a rollout prefix",
        [
            Ask(0, "POST /ng-rollout/R_1/seed_session", body={T: "ep-r"}, ran=0, save="a", same="ep-r"),
            Ask(1, "POST /ng-rollout/R_1/mcp", token="ep-r", ran=0, same="ep-r"),
            Ask(1, SEED, ran=1, save="b"),
            Ask(
                2,
                "POST /ng-rollout/2/close_session",
                cookie="b",
                body={T: "ep-r"},
                ran=NOBODY,
                status=409,
                error="session_conflict",
            ),
            Ask(2, "POST /ng-rollout/2/close_session", body={T: "ep-r"}, ran=0),
            Later("ep-r"),
        ],
    ),
    Case(
        "rollout",
        "a rollout's id starts with a letter or a digit: anything else is a route of the app's own",
        [
            Ask(1, "POST /ng-rollout/.x/seed_session", body={T: "ep-rx"}, ran=1, save="a"),
            Held("ep-rx", NOBODY),
            Later("a"),
        ],
    ),
    Case(
        "root_path",
        "routes match below root_path",
        [
            Ask(0, SEED, body={T: "ep-root"}, ran=0, save="a"),
            Ask(1, VERIFY, cookie="a", ran=0),
            Ask(1, "POST /mcp", token="ep-root", ran=0),
            Later("ep-root"),
        ],
        root_path="/api",
    ),
]

TOKENS = [
    Case(
        "token",
        "on /mcp and below the token beats the cookie, and the reply names the token's session",
        [
            Ask(0, SEED, body={T: "ep-9"}, ran=0, save="a"),
            Ask(1, SEED, ran=1, save="b"),
            Ask(1, "POST /mcp", cookie="b", token="ep-9", ran=0, same="ep-9", count=2),
            Ask(0, "POST /mcp", cookie="b", token="ep-9", ran=0, same="ep-9", count=3),
            Ask(2, "POST /mcp/x", token="ep-9", ran=0, same="ep-9", count=4),
            Ask(2, "POST /mcp", cookie="!bad", token="ep-9", ran=0, same="ep-9", count=5),
            Held("b", 1),
        ],
    ),
    Case(
        "token",
        "elsewhere the cookie goes before the token, which counts when the cookie names no session",
        [
            Ask(0, SEED, body={T: "ep-10"}, ran=0),
            Ask(1, SEED, ran=1, save="b"),
            Ask(2, TOOL, token="ep-10", ran=0, same="ep-10"),
            Ask(2, TOOL, cookie="!bad", token="ep-10", ran=0, same="ep-10"),
            Ask(2, TOOL, cookie="b", token="ep-10", ran=1, same="b"),
            Ask(2, VERIFY, token="ep-10", ran=0, same="ep-10"),
            Later("ep-10"),
        ],
    ),
    Case(
        "token",
        "compressed tokens and those with a worker id in them are read for the session alone",
        [
            Ask(0, SEED, body={T: "ep-11"}, ran=0),
            Ask(1, "POST /mcp", token="ep-11", token_data=MANY_TOOLS, ran=0, same="ep-11"),
            Ask(1, "POST /mcp", token="ep-11", token_data={"worker_id": 2, "worker": 1}, ran=0, same="ep-11"),
        ],
    ),
    Case(
        "token",
        "a token with a bad signature is none",
        [
            Ask(0, SEED, body={T: "ep-12"}, ran=0, save="a"),
            Mark(),
            Ask(1, "POST /mcp", token="!ep-12", ran=1, leaves=True),
            NothingNew(),
            Ask(1, "POST /mcp", token="!ep-12", cookie="a", ran=0, same="ep-12"),
            Ask(1, TOOL, token="!ep-12", ran=1, save="b"),
            Held("b", 1),
        ],
    ),
    Case(
        "token",
        "a token's id that nobody claims is claimed by one worker, and its cookie names it",
        [
            Together([Ask(number, "POST /mcp", token="ep-13", same="ep-13") for number in range(3)]),
            Later("ep-13"),
        ],
    ),
    Case(
        "token",
        "a seed with a token and another typed id is a conflict",
        [
            Ask(0, SEED, token="ep-14", body={T: "ep-15"}, ran=NOBODY, status=409, error="session_conflict"),
            Ask(0, SEED, token="ep-15", body={T: "ep-15"}, ran=0, same="ep-15"),
        ],
    ),
]

CASES = [*TYPED, *TOKENS]
