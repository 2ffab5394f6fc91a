"""The life of a resources session's claim: what opens it, what ends it, and what is remembered of a close."""

from __future__ import annotations

from conformance.script import (
    CLOSE,
    NOBODY,
    SEED,
    TOOL,
    VERIFY,
    WINDOW,
    Ask,
    Case,
    Held,
    Later,
    Leave,
    Outlives,
    T,
)

CHECKPOINT = {"x-ng-checkpoint-close-follows": "1"}


def ends_after(other: str, on: int) -> list[Ask]:
    """A session of worker `on` that ends now: when its claim is gone, what should have ended before is gone too."""
    return [Ask(on, SEED, body={T: other}, ran=on), Ask(on, VERIFY, cookie=f"={other}", ran=on)]


ENDS = [
    Case(
        "ends",
        "a verify ends the session: its claim goes after the window",
        [Ask(0, SEED, ran=0, save="a"), Ask(1, VERIFY, cookie="a", ran=0), Held("a", 0), Later("a")],
    ),
    Case(
        "ends",
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
        "ends",
        "an end ends its session whatever its status, and when it raises or breaks off",
        [
            Ask(0, SEED, ran=0, save="a"),
            Ask(1, VERIFY, cookie="a", body={"status": 500}, status=500, ran=0),
            Ask(1, SEED, ran=1, save="b"),
            Ask(1, VERIFY, cookie="b", body={"raise": True}, status=500),
            Ask(2, SEED, ran=2, save="c"),
            Ask(0, CLOSE, cookie="c", body={"cut": True}),
            Later("a"),
            Later("b"),
            Later("c"),
        ],
    ),
    Case(
        "ends",
        "a verify before a checkpoint's close leaves the session open for that close",
        [
            Ask(0, SEED, ran=0, save="a"),
            Ask(1, VERIFY, cookie="a", headers=CHECKPOINT, ran=0),
            *ends_after("after-1", 0),
            Outlives("a", "after-1"),
            Ask(2, CLOSE, cookie="a", ran=0),
            Later("a"),
        ],
    ),
    Case(
        "ends",
        "a step ends the session when its JSON reply says terminated or truncated",
        [
            Ask(0, "POST /reset", ran=0, save="a"),
            Ask(1, "POST /reset", ran=1, save="b"),
            Ask(1, "POST /step", cookie="a", body={"terminated": False, "truncated": True}, ran=0),
            Ask(1, "POST /step", cookie="b", body={"terminated": True, "truncated": False}, ran=1),
            Later("a"),
            Later("b"),
        ],
    ),
    Case(
        "ends",
        "a step that says neither leaves it open",
        [
            Ask(0, "POST /reset", ran=0, save="a"),
            Ask(1, "POST /step", cookie="a", body={"terminated": False, "truncated": False}, ran=0),
            Ask(1, "POST /step", cookie="a", body={"inner": {"terminated": True}}, ran=0),
            *ends_after("after-2", 0),
            Outlives("a", "after-2"),
        ],
    ),
    Case(
        "ends",
        "starts and ends match POST only",
        [
            Ask(0, SEED, ran=0, save="a"),
            Ask(1, "GET /verify", cookie="a", status=405),
            Ask(1, "DELETE /close_session", cookie="a", status=405),
            *ends_after("after-3", 0),
            Outlives("a", "after-3"),
        ],
    ),
    Case(
        "ends",
        "routes of the config start and end sessions beside the preset's",
        [
            Ask(0, "POST /open_it", ran=0, save="a"),
            *ends_after("after-4", 0),
            Outlives("a", "after-4"),
            Ask(1, "POST /finish_it", cookie="a", ran=0),
            Later("a"),
        ],
        affinity={"session_starts": ["/open_it"], "session_ends": ["/finish_it"]},
    ),
    Case(
        "ends",
        "an end without an id ends nothing",
        [Ask(0, SEED, ran=0, save="a"), Ask(0, VERIFY, ran=0), *ends_after("after-5", 0), Outlives("a", "after-5")],
    ),
]

LIFE = [
    Case(
        "open",
        "an open session keeps its claim, however long nobody asks for it",
        [
            Ask(0, SEED, ran=0, save="a"),
            Ask(1, "POST /reset", ran=1, save="b"),
            *ends_after("after-6", 0),
            Outlives("a", "after-6"),
            *ends_after("after-7", 1),
            Outlives("b", "after-7"),
            Ask(2, TOOL, cookie="a", ran=0, count=2),
        ],
    ),
    Case(
        "open",
        "an open session without requests ends when `open_idle_seconds` is set, for clients that went away",
        [Ask(0, SEED, ran=0, save="a"), Ask(1, TOOL, cookie="a", ran=0), Later("a")],
        affinity={"open_idle_seconds": 0.4},
    ),
    Case(
        "not open",
        "an ended session is served by its worker through the window, which a request prolongs",
        [
            Ask(0, SEED, ran=0, save="a"),
            Ask(0, VERIFY, cookie="a", ran=0),
            *ends_after("after-8", 0),
            Ask(1, TOOL, cookie="a", body={"wait": 2 * WINDOW + 0.1}, ran=0, count=3),
            Outlives("a", "after-8"),
            Later("a"),
            Ask(1, TOOL, cookie="a", ran=1, count=1),
        ],
    ),
    Case(
        "not open",
        "a seed that fails keeps its claim for the window, and its close reaches the same worker",
        [
            Ask(1, SEED, body={T: "ep-4", "status": 500}, status=500, ran=1),
            Held("ep-4", 1),
            Ask(0, CLOSE, body={T: "ep-4"}, ran=1),
            Later("ep-4"),
        ],
    ),
    Case(
        "not open",
        "any status but 2xx, a raise and a reply that breaks off are failed seeds",
        [
            Ask(0, SEED, body={T: "fail-1", "status": 404}, status=404, ran=0),
            Held("fail-1", 0),
            Ask(1, SEED, body={T: "fail-2", "raise": True}, status=500),
            Held("fail-2", 1),
            Ask(2, SEED, body={T: "fail-3", "cut": True}, ran=2),
            Held("fail-3", 2),
            Ask(2, SEED, body={T: "fail-4", "status": 302}, status=302, ran=2),
            Ask(2, SEED, body={T: "fail-5", "short": True}, ran=2),
            Ask(1, SEED, body={T: "fail-5", "short": True}, ran=2),
            Later("fail-1"),
            Later("fail-2"),
            Later("fail-3"),
            Later("fail-4"),
            Later("fail-5"),
        ],
    ),
    Case(
        "not open",
        "a seed whose client went away before its reply has failed: nobody may know the id",
        [
            Leave(Ask(0, SEED, body={T: "left-2", "wait": 0.4}), in_body=False),
            Held("left-2", 0),
            Later("left-2"),
        ],
    ),
    Case(
        "not open",
        "a placed seed whose client went away has failed too",
        [
            Ask(1, SEED, ran=1),
            Leave(Ask(1, SEED, body={T: "left-3", "wait": 0.4}), in_body=False),
            Held("left-3", 0),
            Later("left-3"),
        ],
        placement="least_sessions",
    ),
    Case(
        "not open",
        "a retry of a seed whose client went away opens the session",
        [
            Leave(Ask(0, SEED, body={T: "left-4", "wait": 0.4}), in_body=False),
            Ask(1, SEED, body={T: "left-4"}, ran=0),
            *ends_after("after-9", 0),
            Outlives("left-4", "after-9"),
        ],
    ),
    Case(
        "not open",
        "a second seed that fails does not end an open session",
        [
            Ask(0, SEED, body={T: "ep-18"}, ran=0),
            Ask(1, SEED, body={T: "ep-18", "status": 500}, status=500, ran=0),
            *ends_after("after-10", 0),
            Outlives("ep-18", "after-10"),
        ],
    ),
    Case(
        "in flight",
        "no claim ends while the app's callable runs for it, after the reply as well",
        [
            Ask(0, SEED, ran=0, save="a"),
            Ask(1, VERIFY, cookie="a", body={"background": True}, ran=0),
            *ends_after("after-11", 0),
            Outlives("a", "after-11"),
            Ask(1, "POST /release", cookie="a", ran=0),
            Later("a"),
        ],
    ),
]

CLOSED = [
    Case(
        "closed ids",
        "a late seed of a closed id is refused, and runs again when the window is over",
        [
            Ask(0, SEED, body={T: "ep-5"}, ran=0),
            Ask(1, CLOSE, body={T: "ep-5"}, ran=0),
            Ask(1, SEED, body={T: "ep-5"}, ran=NOBODY, status=409, error="session_closed", leaves=True),
            Ask(0, SEED, body={T: "ep-5"}, ran=NOBODY, status=409, error="session_closed", leaves=True),
            Ask(2, SEED, cookie="=ep-5", body={T: "ep-5"}, ran=NOBODY, status=409, error="session_closed", keeps=True),
            Later("ep-5"),
            Ask(1, SEED, body={T: "ep-5"}, ran=1, count=1),
        ],
    ),
    Case(
        "closed ids",
        "a close of an id that nobody claimed makes a claim, and its delayed seed is refused",
        [
            Ask(0, CLOSE, body={T: "ep-6"}, ran=0, same="ep-6"),
            Held("ep-6", 0),
            Ask(1, SEED, body={T: "ep-6"}, ran=NOBODY, status=409, error="session_closed"),
            Later("ep-6"),
            Ask(1, SEED, body={T: "ep-6"}, ran=1),
        ],
    ),
    Case(
        "closed ids",
        "a close may be repeated, and what is no seed is served",
        [
            Ask(0, CLOSE, body={T: "ep-19"}, ran=0, count=1),
            Ask(1, CLOSE, body={T: "ep-19"}, ran=0, count=2),
            Ask(1, TOOL, cookie="=ep-19", ran=0, count=3),
            Later("ep-19"),
        ],
    ),
    Case(
        "closed ids",
        "an untyped seed is never a late one",
        [
            Ask(0, SEED, body={T: "ep-20"}, ran=0, save="a"),
            Ask(0, CLOSE, body={T: "ep-20"}, ran=0),
            Ask(1, SEED, cookie="a", ran=0, same="ep-20"),
        ],
    ),
    Case(
        "closed ids",
        "closed ids are left to the app where the config says so",
        [Ask(0, CLOSE, body={T: "ep-7"}, ran=0), Ask(1, SEED, body={T: "ep-7"}, ran=0)],
        affinity={"remember_closed": False},
    ),
]

CASES = [*ENDS, *LIFE, *CLOSED]
