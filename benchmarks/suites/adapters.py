"""What reading a request and a reply costs. The aim for a request is 1.5 us, known cookie or none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks.harness.rows import Case, Key, Mark, Opened, Row, Sample, Suite, single
from server_adapters.adapter import Adapter
from server_adapters.heads import RequestHead, ResponseHead
from server_adapters.registry import build
from server_adapters.session_cookie import CookieSettings, SessionCookie

NAME = "StatefulCounterResourcesServer___counter"
SESSION = "3b0f5c1e-95b5-4e4c-9a63-31b3c8a6e0aa"
CALLS = 500
AIM = Mark(1.5)
READS = ("-bare", "-known", "-rollout")

HEADERS = [
    (b"host", b"127.0.0.1:8000"),
    (b"accept", b"*/*"),
    (b"accept-encoding", b"gzip, deflate"),
    (b"user-agent", b"Python/3.11 aiohttp/3.14.5"),
    (b"content-length", b"12"),
    (b"content-type", b"application/json"),
]


def heads() -> tuple[RequestHead, RequestHead, RequestHead, ResponseHead]:
    """A request without a cookie, one with it, that one under a rollout, and a reply that signs the cookie anew."""
    signer = SessionCookie(CookieSettings(NAME, NAME), field="session_id")
    value = signer.sign({"session_id": SESSION, "agent_session_id": SESSION})
    named = [*HEADERS, (b"cookie", f"{NAME}={value}".encode())]
    path = "/increment_counter"
    line = f"{NAME}={value}; path=/; Max-Age=1209600; httponly; samesite=lax".encode()
    reply = [(b"content-length", b"16"), (b"content-type", b"application/json"), (b"set-cookie", line)]
    return (
        RequestHead("POST", path, path.encode(), b"", HEADERS),
        RequestHead("POST", path, path.encode(), b"", named),
        RequestHead("POST", f"/ng-rollout/task0-roll0{path}", b"", b"", named),
        ResponseHead(200, reply),
    )


def cases() -> dict[str, tuple[str, Callable[[], object]]]:
    """What is measured: what it is and a call of it, by the row's name."""
    bare, known, rollout, reply = heads()
    found: dict[str, tuple[str, Callable[[], object]]] = {}

    def add(adapter: Adapter) -> None:
        reading, name = adapter.read(known), adapter.name
        found[f"{name}-bare"] = f"{name}: no cookie", lambda: adapter.read(bare)
        found[f"{name}-known"] = f"{name}: known cookie", lambda: adapter.read(known)
        found[f"{name}-rollout"] = f"{name}: known cookie, rollout", lambda: adapter.read(rollout)
        found[f"{name}-reply"] = f"{name}: known reply", lambda: adapter.reply(known, reading, SESSION, reply)

    cookie = {"cookie": NAME, "secret": NAME}
    add(build({"preset": "gym-resources", **cookie}, None, server="bench"))
    add(build({"preset": "gym-agent", **cookie}, None, server="bench"))
    add(build({"preset": "starlette-session", "field": "session_id", **cookie}, None, server="bench"))
    signed = {"signed_cookie": {"name": NAME, "secret": NAME, "field": "session_id"}}
    add(build({"preset": "custom", "sources": [signed, {"header": "x-session"}]}, None, server="bench"))
    add(build({"preset": "none"}, None, server="bench"))

    def cold() -> object:
        return SessionCookie(CookieSettings(NAME, NAME), field="session_id").session(known.headers[-1][1])

    found["cookie-cold"] = "a cookie for the first time, with its key's derivation", cold
    resources = build({"preset": "gym-resources", **cookie}, None, server="bench")
    found["cookie-put"] = "a new id put into a request", lambda: resources.mint(bare, SESSION)
    return found


def measure(run: Callable[[], object]) -> Sample:
    """Seconds of one call."""
    start = time.perf_counter()
    for _ in range(CALLS):
        run()
    return {"call": (time.perf_counter() - start) / CALLS}


@contextmanager
def opened(wanted: frozenset[Key]) -> Iterator[Opened]:
    """What is wanted of the cases."""
    yield Opened([Case(name, "", partial(measure, run)) for name, (_, run) in CASES.items() if (name, "") in wanted])


CASES = cases()
ROWS = tuple(
    Row(name, what, "us", single("call", (name, ""), times=1e6), AIM if name.endswith(READS) else None)
    for name, (what, _) in CASES.items()
)
SUITE = Suite("adapters", "what reading a request and a reply costs", 30, ROWS, opened)
