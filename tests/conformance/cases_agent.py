"""Agent servers, and servers with one worker."""

from __future__ import annotations

from conformance.script import (
    AGENT_CLOSE,
    AGENTS,
    CLOSE,
    NOBODY,
    RUN,
    SEED,
    TOOL,
    A,
    Ask,
    Case,
    Held,
    Kill,
    Later,
    Mark,
    NothingNew,
    Outlives,
    PrivateSockets,
    T,
    Together,
)

AGENT = [
    Case(
        "agent",
        "an agent's seed, its calls and its close name one id",
        [
            Ask(0, AGENTS, body={A: "ag-1"}, ran=0, save="a", same="ag-1"),
            Held("ag-1", 0),
            Ask(1, RUN, cookie="a", ran=0, count=2),
            Ask(2, "GET /", cookie="a", ran=0, count=3),
            Ask(2, AGENT_CLOSE, body={A: "ag-1"}, ran=0, count=4),
            Later("ag-1"),
        ],
        kind="agent",
    ),
    Case(
        "agent",
        "under a rollout prefix and below the token capture, in either order",
        [
            Ask(0, "POST /training-token-capture/v1/agent_sessions", body={A: "ag-c1"}, ran=0),
            Ask(1, "POST /training-token-capture/ng-rollout/7/v1/agent_sessions/close", body={A: "ag-c1"}, ran=0),
            Ask(1, "POST /ng-rollout/r/training-token-capture/v1/agent_sessions", body={A: "ag-c2"}, ran=1),
            Ask(2, "POST /ng-rollout/r/v1/agent_sessions/close", body={A: "ag-c2"}, ran=1),
            Ask(0, "POST /training-token-capture/run", cookie="=ag-c2", ran=1),
            Later("ag-c1"),
            Later("ag-c2"),
        ],
        kind="agent",
    ),
    Case(
        "agent",
        "two ids of an agent's request are refused before the app sees anything",
        [
            Ask(0, AGENTS, body={A: "ag-5"}, ran=0, save="a"),
            Ask(1, AGENTS, cookie="a", body={A: "ag-6"}, ran=NOBODY, status=409, error="session_conflict", keeps=True),
            Ask(0, AGENT_CLOSE, cookie="a", body={A: "ag-6"}, ran=NOBODY, status=409, error="session_conflict"),
            Held("ag-6", NOBODY),
        ],
        kind="agent",
    ),
    Case(
        "agent",
        "an id that the app makes in an untyped seed is claimed where it ran",
        [Ask(1, AGENTS, body={}, ran=1, save="a"), Held("a", 1), Ask(0, RUN, cookie="a", ran=1)],
        kind="agent",
    ),
    Case(
        "agent",
        "a request without an agent session runs where it lands and leaves nothing",
        [
            Mark(),
            Ask(2, "POST /v1/responses", ran=2, save="m"),
            Ask(1, "GET /", ran=1),
            Ask(1, "POST /v1/responses", raw="{name}={m}", ran=1),
            NothingNew(),
        ],
        kind="agent",
    ),
    Case(
        "agent",
        "with `field: session_id` every POST has a session, as on resources servers",
        [
            Ask(2, "POST /v1/responses", ran=2, save="a"),
            Held("a", 2),
            Ask(1, RUN, cookie="a", ran=2, same="a"),
            Mark(),
            Ask(1, "GET /", ran=1, leaves=True),
            NothingNew(),
            Later("a"),
        ],
        kind="agent",
        affinity={"field": "session_id"},
    ),
    Case(
        "agent",
        "a valid agent cookie that nobody claims is claimed by one worker",
        [Together([Ask(number, RUN, cookie="=ag-old") for number in range(3)]), Later("ag-old")],
        kind="agent",
    ),
    Case(
        "agent",
        "the sessions of a dead worker are gone, with the cookie in the reply",
        [
            Ask(0, AGENTS, body={A: "ag-7"}, ran=0, save="a"),
            Kill(0),
            Ask(1, RUN, cookie="a", ran=NOBODY, status=410, error="session_gone", keeps=True),
            Ask(2, AGENTS, body={A: "ag-7"}, ran=NOBODY, status=410, error="session_gone"),
            Ask(2, AGENT_CLOSE, body={A: "ag-7"}, ran=NOBODY, status=410, error="session_gone"),
        ],
        kind="agent",
    ),
]

AGENT_LIFE = [
    Case(
        "agent's end",
        "a seed that creates nothing lets its claim go at once, if it made that and nobody else came for the id",
        [
            Ask(0, AGENTS, body={A: "ag-2", "status": 422}, status=422, ran=0),
            Held("ag-2", NOBODY),
            Ask(1, AGENTS, body={A: "ag-2"}, ran=1),
            Ask(0, AGENTS, body={A: "ag-2", "status": 422}, status=422, ran=1),
            Held("ag-2", 1),
        ],
        kind="agent",
    ),
    Case(
        "agent's end",
        "a claim that another request made, or that another has succeeded under, is not rolled back",
        [
            Together(
                [
                    Ask(0, AGENTS, body={A: "ag-8", "status": 422, "wait": 0.2}, status=422),
                    Ask(1, RUN, cookie="=ag-8", same="ag-8"),
                ]
            ),
            Ask(0, AGENTS, body={A: "ag-13", "status": 500}, status=500, ran=0),
            Ask(1, AGENTS, body={A: "ag-13", "status": 422}, status=422, ran=0),
            Held("ag-13", 0),
            Ask(0, AGENTS, body={A: "ag-9"}, ran=0),
            *[Ask(0, AGENTS, body={A: "ag-9", "status": 400}, status=400, ran=0)] * 2,
            Held("ag-9", 0),
        ],
        kind="agent",
    ),
    Case(
        "agent's end",
        "a seed that fails otherwise keeps its claim for the window",
        [
            Ask(0, AGENTS, body={A: "ag-3", "status": 500}, status=500, ran=0),
            Ask(1, AGENTS, body={A: "ag-4", "raise": True}, status=500),
            Held("ag-3", 0),
            Held("ag-4", 1),
            Later("ag-3"),
            Later("ag-4"),
        ],
        kind="agent",
    ),
    Case(
        "agent's end",
        "an open agent session keeps its claim; the window runs from the close's reply",
        [
            Ask(0, AGENTS, body={A: "ag-10"}, ran=0),
            Ask(0, AGENTS, body={A: "ag-11"}, ran=0),
            Ask(1, AGENT_CLOSE, body={A: "ag-11"}, ran=0),
            Outlives("ag-10", "ag-11"),
            Ask(1, AGENT_CLOSE, body={A: "ag-10"}, ran=0),
            Later("ag-10"),
        ],
        kind="agent",
    ),
    Case(
        "agent's end",
        "a late seed of a closed id is refused; the close of an unknown id makes the claim for that",
        [
            Ask(2, AGENT_CLOSE, body={A: "ag-12"}, ran=2),
            Ask(0, AGENTS, body={A: "ag-12"}, ran=NOBODY, status=409, error="session_closed"),
            Later("ag-12"),
            Ask(0, AGENTS, body={A: "ag-12"}, ran=0),
        ],
        kind="agent",
    ),
]

ALONE = [
    Case(
        "one worker",
        "no private socket and no claims, and still one id per session",
        [
            PrivateSockets(0),
            Ask(0, SEED, body={T: "solo-1"}, ran=0, save="a", same="solo-1"),
            Held("solo-1", NOBODY),
            Ask(0, TOOL, cookie="a", ran=0, same="solo-1", count=2),
            Ask(0, "POST /mcp", token="solo-1", ran=0, same="solo-1", count=3),
            Ask(0, CLOSE, body={T: "solo-1"}, ran=0, same="solo-1", count=4),
            Held("solo-1", NOBODY),
        ],
        workers=1,
    ),
    Case(
        "one worker",
        "two ids are refused, and a late seed",
        [
            Ask(0, SEED, ran=0, save="a"),
            Ask(0, SEED, cookie="a", body={T: "solo-2"}, ran=NOBODY, status=409, error="session_conflict", keeps=True),
            Ask(0, CLOSE, body={T: "solo-3"}, ran=0),
            Ask(0, SEED, body={T: "solo-3"}, ran=NOBODY, status=409, error="session_closed"),
        ],
        workers=1,
    ),
    Case(
        "one worker",
        "what leaves nothing leaves no cookie either",
        [
            Ask(0, "GET /", ran=0, leaves=True),
            Ask(0, "POST /aggregate_metrics", ran=0, leaves=True),
            Ask(0, "POST /mcp", ran=0, leaves=True),
            Ask(0, "POST /read", status=405, leaves=True),
            Ask(0, TOOL, ran=0, save="a"),
            Ask(0, TOOL, cookie="a", ran=0, same="a", count=2),
        ],
        workers=1,
    ),
    Case(
        "one worker",
        "an agent server",
        [
            PrivateSockets(0),
            Ask(0, AGENTS, body={A: "solo-4"}, ran=0, save="a", same="solo-4"),
            Ask(0, RUN, cookie="a", ran=0, count=2),
            Ask(0, AGENT_CLOSE, cookie="a", body={A: "solo-5"}, ran=NOBODY, status=409, error="session_conflict"),
        ],
        kind="agent",
        workers=1,
    ),
]

CASES = [*AGENT, *AGENT_LIFE, *ALONE]
