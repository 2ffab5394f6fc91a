"""HTTP/1: replies, bodies, connections, and what becomes of either when something breaks."""

from __future__ import annotations

from wire.app import ODD
from wire.script import (
    Case,
    Eof,
    Gate,
    HalfClose,
    Leave,
    Noted,
    Send,
    Stalled,
    Until,
    request,
    simple,
)

MIB = 1024 * 1024
CHUNKS = b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n"
CHUNKED = "Transfer-Encoding: chunked"

HOP = {"": "the owner's hop-by-hop headers are dropped; the acceptor's server writes its own"}

HALF_CLOSED = {
    "": "uvicorn takes a half-close for the client's end, and drops a reply that is not there in the same turn"
}

REPLIES = [
    Case("reply", "head and body", simple("GET /length")),
    Case("reply", "chunked", [Send(request("GET /chunked")), Until(b"hello "), Gate(), Eof()]),
    Case("reply", "empty pieces", [Send(request("GET /empty-pieces")), Until(b"x\r\n"), Gate(), Eof()]),
    Case("reply", "HEAD", simple("HEAD /length")),
    Case("reply", "HEAD of one whole piece", simple("HEAD /scope")),
    Case(
        "reply",
        "HEAD, then GET, on one connection",
        [Send(request("HEAD /scope", last=False) + request("GET /scope")), Eof()],
    ),
    Case("reply", "HEAD of a chunked one", [Send(request("HEAD /chunked")), Until(b"\r\n\r\n"), Gate(), Eof()]),
    *(Case("reply", status, simple(f"GET /status/{status}")) for status in ("204", "304", "404", "500", "299")),
    Case(
        "reply", "several cookies both ways", simple("GET /cookies", "Cookie: a=1; b=2", "Cookie: a=2", "Cookie: a=1")
    ),
    Case("reply", "long headers", simple("GET /header/30000")),
    Case("reply", "hop-by-hop headers", simple("GET /hop"), differs=HOP),
    *(
        Case(
            "one message", kind.replace("-", " "), simple(f"GET /one/{kind}"), differs=HOP if kind == "chunked" else {}
        )
        for kind in ODD
    ),
    *(
        Case(
            "one message",
            f"{kind.replace('-', ' ')}, kept alive",
            [
                Send(request(f"POST /one/{kind}", "Content-Length: 2", body=b"hi", last=False)),
                Until(b"hello"),
                *simple("GET /one/plain"),
            ],
        )
        for kind in ("plain", "no-length", "title-case")
    ),
    *(
        Case("one message", f"HEAD, {kind}", simple(f"HEAD /one/{kind}"))
        for kind in ("plain", "too-short", "no-length")
    ),
    Case("one message", "HTTP/1.0", simple("GET /one/plain HTTP/1.0")),
    Case("one message", "the client resets meanwhile", [Send(request("GET /one/plain")), Leave(reset=True)]),
    Case("reply", "early hints", simple("GET /hints")),
    Case("reply", "trailers", simple("GET /trailers", "TE: trailers")),
    Case("reply", "8 MiB in one message", simple(f"GET /lump/{8 * MIB}"), joined=True),
]

REQUESTS = [
    Case("request", "raw path and query", simple("GET /scope/a%2Fb/caf%C3%A9/%ff?x=%20&x=1&y=%C3%A9")),
    Case("request", "absolute target", simple("GET http://h/scope?x=1")),
    Case(
        "request",
        "odd bytes in headers",
        simple("GET /scope", "X-Odd: \xe9\xff", "X-Empty:", "X-Twice: 1", "X-Twice: 2"),
    ),
    Case("request", "a header of 50,000 bytes", simple("GET /scope", "X-Long: " + "x" * 50000)),
    Case("request", "an id of 2,000 bytes", simple("GET /scope", "X-Other: " + "i" * 2000)),
    Case("request", "OPTIONS *", simple("OPTIONS /scope")),
    Case("request", "an odd method", simple("PROPFIND /scope")),
    Case("request", "POST", simple("POST /echo", "Content-Length: 5", body=b"hello")),
    Case("request", "POST without a body", simple("POST /echo", "Content-Length: 0")),
    Case("request", "POST without a length", simple("POST /echo")),
    Case("request", "chunked upload", simple("POST /echo", CHUNKED, body=CHUNKS)),
    Case(
        "request", "chunked upload with trailers", simple("POST /echo", CHUNKED, body=CHUNKS[:-2] + b"X-Sum: 1\r\n\r\n")
    ),
    Case(
        "request",
        "upload of 3 MB",
        simple("POST /echo", "Content-Length: 3000000", body=bytes(range(250)) * 12000),
        joined=True,
    ),
    Case(
        "request",
        "upload while the reply streams",
        [
            Send(request("POST /mirror", CHUNKED)),
            Send(b"3\r\none\r\n"),
            Until(b"<one>"),
            Send(b"3\r\ntwo\r\n"),
            Until(b"<two>"),
            Send(b"0\r\n\r\n"),
            Eof(),
        ],
    ),
    Case("request", "upload that the app does not read", simple("POST /refuse", "Content-Length: 5", body=b"hello")),
    Case(
        "request", "Expect, read", [*simple("POST /echo", "Expect: 100-continue", "Content-Length: 5", body=b"hello")]
    ),
    Case(
        "request",
        "Expect, sent when told to",
        [
            Send(request("POST /echo", "Expect: 100-continue", "Content-Length: 5")),
            Until(b"100 Continue\r\n\r\n"),
            Send(b"hello"),
            Eof(),
        ],
    ),
    Case("request", "Expect, refused", simple("POST /refuse", "Expect: 100-continue", "Content-Length: 5")),
    Case("request", "Expect, something else", simple("POST /echo", "Expect: cake", "Content-Length: 5", body=b"hello")),
]

CONNECTIONS = [
    Case("connection", "HTTP/1.0", simple("GET /length HTTP/1.0")),
    Case(
        "connection", "HTTP/1.0, no length", [Send(request("GET /chunked HTTP/1.0")), Until(b"hello "), Gate(), Eof()]
    ),
    Case(
        "connection",
        "HTTP/1.0, keep-alive",
        [
            Send(request("GET /length HTTP/1.0", "Connection: keep-alive", last=False)),
            Until(b"hello"),
            HalfClose(),
            Eof(),
        ],
    ),
    Case(
        "connection",
        "keep-alive",
        [
            Send(request("GET /length", last=False)),
            Until(b"hello"),
            Send(request("POST /echo", "Content-Length: 2", body=b"hi", last=False)),
            Until(b"hi"),
            *simple("GET /length"),
        ],
    ),
    Case(
        "connection",
        "pipelined",
        [
            Send(
                request("GET /length", last=False)
                + request("POST /echo", "Content-Length: 2", body=b"hi", last=False)
                + request("POST /echo", CHUNKED, body=CHUNKS, last=False)
                + request("GET /scope")
            ),
            Eof(),
        ],
    ),
    Case(
        "connection",
        "pipelined behind one that is not read",
        [
            Send(request("POST /refuse", "Content-Length: 5", body=b"hello", last=False) + request("GET /length")),
            Eof(),
        ],
    ),
    Case(
        "connection",
        "half-closed after the request",
        [Send(request("GET /length")), HalfClose(), Eof()],
        differs=HALF_CLOSED,
    ),
    Case(
        "connection",
        "half-closed in a stream",
        [Send(request("GET /events/1")), Until(b"data: 0\n\n"), HalfClose(), Gate(), Eof()],
    ),
    Case(
        "connection",
        "half-closed in the body",
        [Send(request("POST /echo", "Content-Length: 10", body=b"half")), HalfClose(), Eof(), Noted()],
    ),
]

STREAMS = [
    Case(
        "stream",
        "events as they come",
        [
            Send(request("GET /events/3")),
            *(step for n in range(3) for step in (Until(b"data: %d\n\n" % n), Gate())),
            Eof(),
        ],
    ),
    Case("stream", "events that are ready together", simple("GET /burst/1000"), joined=True),
    Case("stream", "the client leaves", [Send(request("GET /endless")), Until(b"data: first\n\n"), Leave(), Noted()]),
    Case(
        "stream",
        "the client resets",
        [Send(request("GET /endless")), Until(b"data: first\n\n"), Leave(reset=True), Noted()],
    ),
    Case(
        "stream",
        "a stalled client stops the app",
        [
            Send(request(f"GET /flood/{16 * MIB}")),
            Until(b"\r\n\r\n"),
            Stalled(8 * MIB),
            Eof(),
        ],
        joined=True,
    ),
    Case(
        "stream",
        "a slow app stops the client",
        [
            Send(request("POST /late-read", f"Content-Length: {16 * MIB}")),
            Send(b"x" * 16 * MIB, at_once=True),
            Stalled(0),
            Gate(),
            Eof(),
        ],
    ),
]

BROKEN = [
    Case("cancelled", "before the head", [Send(request("GET /wait")), Noted(2), Leave(), Noted(3)]),
    Case(
        "cancelled", "in the body", [Send(request("POST /echo", "Content-Length: 10", body=b"half")), Leave(), Noted()]
    ),
    Case("cancelled", "after the reply", [Send(request("GET /after", last=False)), Until(b"done"), Noted()]),
    Case("error", "before the head", simple("GET /error")),
    Case("error", "after the head", [Send(request("GET /late-error")), Until(b"half"), Gate(), Eof()]),
    Case(
        "error",
        "after a POST's head",
        [Send(request("POST /late-error", "Content-Length: 2", body=b"hi")), Until(b"half"), Gate(), Eof()],
    ),
    Case("error", "body too short", [Send(request("GET /short")), Until(b"half"), Gate(), Eof()]),
    Case("error", "no reply", simple("GET /nothing")),
]

CASES = [*REPLIES, *REQUESTS, *CONNECTIONS, *STREAMS, *BROKEN]
