"""HTTP/2, in uvicorn's zttp: streams side by side on one connection."""

from __future__ import annotations

from typing import Any

from wire.script import Case, Data, Ended, Gate, Leave, Noted, Reset, Step, Stream, Until

MIB = 1024 * 1024
STACK = ("zttp",)


def case(name: str, *steps: Step, **more: Any) -> Case:
    """One of HTTP/2."""
    return Case("HTTP/2", name, list(steps), only=STACK, http2=True, **more)


CASES = [
    case("head and body", Stream("a", "GET", "/length"), Ended("a")),
    case("HEAD", Stream("a", "HEAD", "/length"), Ended("a")),
    case("204", Stream("a", "GET", "/status/204"), Ended("a")),
    case(
        "scope",
        Stream("a", "GET", "/scope/a%2Fb/caf%C3%A9?x=%20&x=1", (("cookie", "a=1"), ("cookie", "b=2"))),
        Ended("a"),
    ),
    case("several cookies", Stream("a", "GET", "/cookies", (("cookie", "a=1"), ("cookie", "b=2"))), Ended("a")),
    case("early hints", Stream("a", "GET", "/hints"), Ended("a")),
    case("trailers", Stream("a", "GET", "/trailers", (("te", "trailers"),)), Ended("a")),
    case("trailers that nobody takes", Stream("a", "GET", "/trailers"), Ended("a")),
    case("POST", Stream("a", "POST", "/echo", (), b"hello"), Ended("a")),
    case("upload of 1 MiB", Stream("a", "POST", "/echo", (), b"u" * MIB), Ended("a")),
    case("reply of 1 MiB", Stream("a", "GET", f"/lump/{MIB}"), Ended("a")),
    case(
        "upload while the reply streams",
        Stream("a", "POST", "/mirror", ends=False),
        Data("a", b"one"),
        Until(b"<one>"),
        Data("a", b"two"),
        Until(b"<two>"),
        Data("a", b"", ends=True),
        Ended("a"),
    ),
    case(
        "streams side by side",
        Stream("a", "GET", "/events/2"),
        Until(b"data: 0"),
        Stream("b", "POST", "/echo", (), b"hello"),
        Ended("b"),
        Gate(),
        Until(b"data: 1"),
        Gate(),
        Ended("a"),
    ),
    case("the client resets a stream", Stream("a", "GET", "/endless"), Until(b"first"), Reset("a"), Noted()),
    case("the client leaves", Stream("a", "GET", "/endless"), Until(b"first"), Leave(), Noted()),
    case("the app raises before the head", Stream("a", "GET", "/error"), Ended("a")),
    case("the app raises after the head", Stream("a", "GET", "/late-error"), Until(b"half"), Gate(), Ended("a")),
    case("body too short", Stream("a", "GET", "/short"), Until(b"half"), Gate(), Ended("a")),
    case("no reply", Stream("a", "GET", "/nothing"), Ended("a")),
]
