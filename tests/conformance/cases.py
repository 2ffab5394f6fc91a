"""The session rule as a table: what is asked of which worker, who runs it, what is answered, who holds what after it.

A case is a script of `Ask`, `Kill`, `Held` and `Later`. Cookies have names of the case's own: `cookie="a"` sends what
`save="a"` kept. Workers are numbers; placement is `accepting`, so a new session belongs to the worker it landed on.
The window is `WINDOW` seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

WINDOW = 0.6
NOBODY = -1


@dataclass(frozen=True)
class Ask:
    """One request to worker `on`.

    ran      the worker whose app ran it; NOBODY: none did
    status   of the reply; error: its `error`
    save     keep the reply's session cookie under this name; it must have one
    keeps    the reply repeats the cookie that was sent; leaves: the reply has no session cookie at all
    same     the reply's cookie names the session of this cookie
    """

    on: int
    route: str
    cookie: str | None = None
    body: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    ran: int | None = None
    status: int = 200
    error: str | None = None
    save: str | None = None
    keeps: bool = False
    leaves: bool = False
    same: str | None = None
    token: str | None = None


@dataclass(frozen=True)
class Kill:
    """Worker `worker` dies; it is not replaced before its siblings are asked."""

    worker: int


@dataclass(frozen=True)
class Held:
    """Who holds the claim of a cookie's or a literal id: a worker, NOBODY, or "gone"."""

    session: str
    by: int | str


@dataclass(frozen=True)
class Later:
    """Wait until a claim is held by nobody: it must end by itself, within the window and a sweep."""

    session: str


@dataclass(frozen=True)
class Case:
    """A script, and the server it is for."""

    name: str
    steps: list[Ask | Kill | Held | Later]
    kind: str = "resources"
    workers: int = 3
    affinity: dict[str, Any] = field(default_factory=dict)


SEED = "POST /seed_session"
CLOSE = "POST /close_session"
VERIFY = "POST /verify"
TOOL = "POST /increment_counter"
T = "resources_session_id"
AGENTS = "POST /v1/agent_sessions"
AGENT_CLOSE = "POST /v1/agent_sessions/close"
A = "agent_session_id"

RESOURCES_CASES = [
    Case(
        "a seed's session belongs to the worker that ran it, wherever later requests land",
        [
            Ask(0, SEED, ran=0, save="a"),
            Held("a", 0),
            Ask(1, TOOL, cookie="a", ran=0, same="a", save="a"),
            Ask(2, TOOL, cookie="a", ran=0, same="a"),
            Ask(0, TOOL, cookie="a", ran=0, same="a"),
            Held("a", 0),
        ],
    ),
    Case(
        "a session started by a tool call without any seed is claimed as well",
        [Ask(1, TOOL, ran=1, save="a"), Held("a", 1), Ask(0, TOOL, cookie="a", ran=1), Later("a")],
    ),
    Case(
        "under a rollout prefix the routes mean the same",
        [
            Ask(0, "POST /ng-rollout/r-1.x/seed_session", ran=0, save="a"),
            Ask(1, "POST /ng-rollout/r-1.x/increment_counter", cookie="a", ran=0),
            Ask(2, "POST /ng-rollout/other/verify", cookie="a", ran=0),
            Later("a"),
        ],
    ),
    Case(
        "a typed seed, its calls and its close name one id",
        [
            Ask(0, SEED, body={T: "ep-1"}, ran=0, save="a"),
            Held("ep-1", 0),
            Ask(1, TOOL, cookie="a", ran=0, same="a"),
            Ask(2, CLOSE, body={T: "ep-1"}, ran=0),
            Later("ep-1"),
        ],
    ),
    Case(
        "a typed seed on a second worker goes to the first",
        [Ask(0, SEED, body={T: "ep-2"}, ran=0), Ask(1, SEED, body={T: "ep-2"}, ran=0), Held("ep-2", 0)],
    ),
    Case(
        "an id that is empty, or no string, makes a seed untyped",
        [
            Ask(0, SEED, body={T: ""}, ran=0, save="a"),
            Ask(1, SEED, body={T: 7}, ran=1, save="b"),
            Held("a", 0),
            Held("b", 1),
        ],
    ),
    Case(
        "two ids are refused before the app sees anything",
        [
            Ask(0, SEED, ran=0, save="a"),
            Ask(1, SEED, cookie="a", body={T: "ep-3"}, ran=NOBODY, status=409, error="session_conflict", keeps=True),
            Ask(0, CLOSE, cookie="a", body={T: "ep-3"}, ran=NOBODY, status=409, error="session_conflict", keeps=True),
            Held("ep-3", NOBODY),
        ],
    ),
    Case(
        "a valid cookie that nobody claims is claimed by the first worker that sees it",
        [
            Ask(1, TOOL, cookie="=old-1", ran=1, save="a"),
            Held("old-1", 1),
            Ask(0, TOOL, cookie="=old-1", ran=1),
            Later("old-1"),
        ],
    ),
    Case(
        "a cookie with a bad signature is a new session",
        [Ask(0, TOOL, cookie="!forged", ran=0, save="a"), Held("forged", NOBODY), Held("a", 0)],
    ),
    Case(
        "what leaves no claim and no cookie",
        [
            Ask(0, "GET /", ran=0, leaves=True),
            Ask(0, "GET /nowhere", status=404, leaves=True),
            Ask(0, "HEAD /", leaves=True),
            Ask(0, "OPTIONS /verify", status=405, leaves=True),
            Ask(0, "POST /moved", status=307, leaves=True),
            Ask(0, "DELETE /read", status=405, leaves=True),
            Ask(0, "POST /aggregate_metrics", ran=0, leaves=True),
            Ask(0, "POST /mcp", ran=0, leaves=True),
            Ask(0, "POST /mcp/", ran=0, leaves=True),
        ],
    ),
    Case(
        "a verify ends the session: its claim goes after the window",
        [Ask(0, SEED, ran=0, save="a"), Ask(1, VERIFY, cookie="a", ran=0), Held("a", 0), Later("a")],
    ),
    Case(
        "an untyped close and a Gymnasium close end it too",
        [
            Ask(0, SEED, ran=0, save="a"),
            Ask(1, CLOSE, cookie="a", ran=0),
            Ask(1, "POST /reset", ran=1, save="b"),
            Ask(0, "POST /close", cookie="b", ran=1),
            Later("a"),
            Later("b"),
        ],
    ),
    Case(
        "a verify before a checkpoint's close leaves the session open for it",
        [
            Ask(0, SEED, ran=0, save="a"),
            Ask(1, VERIFY, cookie="a", headers={"x-ng-checkpoint-close-follows": "1"}, ran=0),
            Ask(2, CLOSE, cookie="a", ran=0),
            Later("a"),
        ],
    ),
    Case(
        "a step ends the session when its reply says terminated or truncated",
        [
            Ask(0, "POST /reset", ran=0, save="a"),
            Ask(1, "POST /step", cookie="a", body={"terminated": False, "truncated": False}, ran=0),
            Ask(1, "POST /step", cookie="a", body={"terminated": False, "truncated": True}, ran=0),
            Later("a"),
        ],
    ),
    Case(
        "a seed that fails keeps its claim for the window, and its close reaches the same worker",
        [
            Ask(1, SEED, body={T: "ep-4", "status": 500}, status=500, ran=1),
            Held("ep-4", 1),
            Ask(0, CLOSE, body={T: "ep-4"}, ran=1),
            Later("ep-4"),
        ],
    ),
    Case(
        "a seed that raises is a failed one",
        [Ask(1, SEED, body={T: "ep-5", "raise": True}, status=500), Held("ep-5", 1), Later("ep-5")],
    ),
    Case(
        "a minted id that its reply does not carry is let go",
        [Ask(0, TOOL, body={"raise": True}, status=500, leaves=True), Held("minted", NOBODY)],
    ),
    Case(
        "a late seed of a closed id is refused, a close of an unknown id makes the claim for it",
        [
            Ask(0, CLOSE, body={T: "ep-6"}, ran=0),
            Held("ep-6", 0),
            Ask(1, SEED, body={T: "ep-6"}, ran=NOBODY, status=409, error="session_closed"),
            Later("ep-6"),
            Ask(1, SEED, body={T: "ep-6"}, ran=1),
        ],
    ),
    Case(
        "closed ids are left to the app where the config says so",
        [Ask(0, CLOSE, body={T: "ep-7"}, ran=0), Ask(1, SEED, body={T: "ep-7"}, ran=0)],
        affinity={"remember_closed": False},
    ),
    Case(
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
        "an id that changes to one that another worker holds: 409 instead of the reply",
        [
            Ask(1, SEED, body={T: "ep-8"}, ran=1),
            Ask(0, SEED, ran=0, save="a"),
            Ask(0, "POST /rotate", cookie="a", body={"to": "ep-8"}, status=409, error="session_conflict"),
            Held("ep-8", 1),
        ],
    ),
    Case(
        "a cookie that a reply expires ends the session",
        [Ask(0, SEED, ran=0, save="a"), Ask(1, "POST /clear", cookie="a", ran=0), Later("a")],
    ),
    Case(
        "routes of the config start and end sessions beside the preset's",
        [
            Ask(0, "POST /open_it", ran=0, save="a"),
            Ask(1, "POST /finish_it", cookie="a", ran=0),
            Later("a"),
        ],
        affinity={"session_starts": ["/open_it"], "session_ends": ["/finish_it"]},
    ),
    Case(
        "on /mcp the token beats the cookie, and the reply names the token's session",
        [
            Ask(0, SEED, body={T: "ep-9"}, ran=0, save="a"),
            Ask(1, TOOL, ran=1, save="b"),
            Ask(1, "POST /mcp", cookie="b", token="ep-9", ran=0, same="a"),
            Ask(2, "POST /mcp/x", token="ep-9", ran=0, same="a"),
            Ask(2, TOOL, token="ep-9", ran=0, same="a"),
        ],
    ),
    Case(
        "the sessions of a dead worker are gone for everybody, with the cookie in the reply",
        [
            Ask(0, SEED, ran=0, save="a"),
            Ask(1, SEED, ran=1, save="b"),
            Kill(0),
            Ask(1, TOOL, cookie="a", ran=NOBODY, status=410, error="session_gone", keeps=True),
            Ask(2, SEED, cookie="a", ran=NOBODY, status=410, error="session_gone", keeps=True),
            Ask(2, TOOL, cookie="b", ran=1),
            Held("a", "gone"),
        ],
    ),
    Case(
        "a typed seed or close of a gone id is refused too",
        [
            Ask(0, SEED, body={T: "ep-10"}, ran=0),
            Kill(0),
            Ask(1, SEED, body={T: "ep-10"}, ran=NOBODY, status=410, error="session_gone"),
            Ask(2, CLOSE, body={T: "ep-10"}, ran=NOBODY, status=410, error="session_gone"),
        ],
    ),
]

AGENT_CASES = [
    Case(
        "an agent's seed, its calls and its close name one id",
        [
            Ask(0, AGENTS, body={A: "ag-1"}, ran=0, save="a"),
            Held("ag-1", 0),
            Ask(1, "POST /run", cookie="a", ran=0),
            Ask(2, "POST /training-token-capture/run", cookie="a", ran=0),
            Ask(2, AGENT_CLOSE, body={A: "ag-1"}, ran=0),
            Later("ag-1"),
        ],
        kind="agent",
    ),
    Case(
        "an agent's seed that creates nothing lets its claim go at once",
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
        "an agent's seed that fails otherwise keeps its claim for the window",
        [Ask(0, AGENTS, body={A: "ag-3", "status": 500}, status=500, ran=0), Held("ag-3", 0), Later("ag-3")],
        kind="agent",
    ),
    Case(
        "an agent's request without a session runs where it lands and leaves nothing",
        [Ask(2, "POST /v1/responses", ran=2), Ask(1, "GET /", ran=1)],
        kind="agent",
    ),
]

CASES = RESOURCES_CASES + AGENT_CASES
