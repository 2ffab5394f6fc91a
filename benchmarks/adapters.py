"""What reading a request and a reply costs: `python -m benchmarks.adapters`.

Each line is measured in turns with the others, so that a busy machine slows all of them alike; the median of the
rounds is shown. The aim for a request is 1.5 us, known cookie or none.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from server_adapters.adapter import Adapter
from server_adapters.heads import RequestHead, ResponseHead
from server_adapters.registry import build
from server_adapters.session_cookie import CookieSettings, SessionCookie

NAME = "StatefulCounterResourcesServer___counter"
SESSION = "3b0f5c1e-95b5-4e4c-9a63-31b3c8a6e0aa"
ROUNDS = 60
CALLS = 500
AIM_US = 1.5

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


def cases() -> dict[str, Callable[[], object]]:
    """What is measured, by name."""
    bare, known, rollout, reply = heads()
    found: dict[str, Callable[[], object]] = {}

    def add(adapter: Adapter) -> None:
        reading = adapter.read(known)
        found[f"{adapter.name}: no cookie"] = lambda: adapter.read(bare)
        found[f"{adapter.name}: known cookie"] = lambda: adapter.read(known)
        found[f"{adapter.name}: known cookie, rollout"] = lambda: adapter.read(rollout)
        found[f"{adapter.name}: known reply"] = lambda: adapter.reply(known, reading, SESSION, reply)

    cookie = {"cookie": NAME, "secret": NAME}
    add(build({"preset": "gym-resources", **cookie}, None, server="bench"))
    add(build({"preset": "gym-agent", **cookie}, None, server="bench"))
    add(build({"preset": "starlette-session", "field": "session_id", **cookie}, None, server="bench"))
    signed = {"signed_cookie": {"name": NAME, "secret": NAME, "field": "session_id"}}
    add(build({"preset": "custom", "sources": [signed, {"header": "x-session"}]}, None, server="bench"))
    add(build({"preset": "none"}, None, server="bench"))

    def cold() -> object:
        return SessionCookie(CookieSettings(NAME, NAME), field="session_id").session(known.headers[-1][1])

    found["a cookie for the first time, with its key's derivation"] = cold
    resources = build({"preset": "gym-resources", **cookie}, None, server="bench")
    found["a new id put into a request"] = lambda: resources.mint(bare, SESSION)
    return found


def measure(run: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    for _ in range(CALLS):
        run()
    return (time.perf_counter() - start) / CALLS


def main() -> None:
    """Print microseconds a call, the median of the rounds."""
    measured = cases()
    rounds: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(ROUNDS):
        for name, run in measured.items():
            rounds[name].append(measure(run))
    for name, seconds in rounds.items():
        microseconds = statistics.median(seconds) * 1e6
        aim = "  over the aim" if "reply" not in name and ":" in name and microseconds > AIM_US else ""
        print(f"{name:58} {microseconds:8.2f} us{aim}")


if __name__ == "__main__":
    main()
