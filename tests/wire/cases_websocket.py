"""WebSockets: frames as a client sends them, and the server's to the last byte."""

from __future__ import annotations

from wire.script import (
    BINARY,
    CLOSE,
    CONT,
    PING,
    TEXT,
    Case,
    Eof,
    Gate,
    HalfClose,
    Leave,
    Noted,
    Send,
    Stalled,
    Step,
    Until,
    closing,
    frame,
    upgrade,
)

MIB = 1024 * 1024
ACCEPTED = Until(b"\r\n\r\n")
BYE: list[Step] = [Send(closing(1000)), Until(b"\x88\x02\x03\xe8"), HalfClose(), Eof(), Noted()]


def echoed(name: str, *frames: bytes, last: bytes, joined: bool = False) -> Case:
    """Frames that come back."""
    return Case(
        "websocket", name, [Send(upgrade("/echo")), ACCEPTED, Send(b"".join(frames)), Until(last), *BYE], joined
    )


MESSAGES = [
    echoed("text", frame(TEXT, "héllo".encode()), last="héllo".encode()),
    echoed("binary", frame(BINARY, b"\x00\xff"), last=b"\x00\xff"),
    echoed("empty", frame(TEXT, b""), frame(BINARY, b""), frame(TEXT, b"z"), last=b"z"),
    echoed("fragmented", frame(TEXT, b"a", fin=False), frame(CONT, b"b", fin=False), frame(CONT, b"c"), last=b"abc"),
    echoed("a character in two fragments", frame(TEXT, b"\xc3", fin=False), frame(CONT, b"\xa9"), last=b"\xc3\xa9"),
    echoed("several at once", *(frame(TEXT, b"%d" % n) for n in range(50)), last=b"49"),
    echoed("100 KB", frame(BINARY, b"q" * 99_999 + b"!"), last=b"q!"),
    echoed("1.5 MB of text", frame(TEXT, b"q" * 1_500_000 + b"!"), last=b"q!"),
    Case("websocket", "ping", [Send(upgrade("/echo")), ACCEPTED, Send(frame(PING, b"hey")), Until(b"hey"), *BYE]),
    echoed("ping between fragments", frame(TEXT, b"a", fin=False), frame(PING, b"p"), frame(CONT, b"b"), last=b"ab"),
    Case("websocket", "many of the app's", [Send(upgrade("/many/500")), Until(b"499"), *BYE]),
    Case("websocket", "large ones of the app's", [Send(upgrade("/lump/1000000")), Until(b"\x00\xff" * 500_000), *BYE]),
    Case(
        "websocket",
        "compressed",
        [
            Send(upgrade("/many/50", "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits")),
            ACCEPTED,
            *BYE,
        ],
    ),
    Case(
        "websocket",
        "a stalled client stops the app",
        [
            Send(upgrade(f"/flood/{16 * MIB}")),
            ACCEPTED,
            Stalled(8 * MIB),
            Until(b"\x88\x02\x03\xe8"),
            Send(closing(1000)),
            HalfClose(),
            Eof(),
        ],
    ),
    Case(
        "websocket",
        "a slow app stops the client",
        [
            Send(upgrade("/late-read")),
            ACCEPTED,
            Send(frame(BINARY, b"x" * 65536) * 256 + frame(TEXT, b"end"), at_once=True),
            Stalled(0),
            Gate(),
            Until(b"16777216"),
            *BYE,
        ],
    ),
]

OWN_CODE = {"h11": "the deprecated `websockets` gives an app that waits while it closes its own code, else 1005"}

HANDSHAKES = [
    Case(
        "handshake",
        "odd bytes in headers",
        [Send(upgrade("/head", "X-Odd: \xe9\xff", "Sec-WebSocket-Protocol: a")), ACCEPTED, *BYE],
        only=("httptools", "zttp"),
    ),
    Case(
        "handshake",
        "scope",
        [
            Send(
                upgrade(
                    "/scope/a%2Fb/caf%C3%A9?x=%20&x=1",
                    "Cookie: a=1",
                    "Cookie: b=2",
                    "Origin: http://o",
                )
            ),
            Until(b"127.0.0.1']"),
            *BYE,
        ],
    ),
    Case(
        "handshake",
        "subprotocol and headers",
        [
            Send(upgrade("/head", "Sec-WebSocket-Protocol: soap, wamp", "Sec-WebSocket-Protocol: last")),
            ACCEPTED,
            *BYE,
        ],
    ),
    Case("handshake", "closed", [Send(upgrade("/refuse")), Eof()]),
    Case("handshake", "denied", [Send(upgrade("/deny")), Eof()], joined=True),
    Case("handshake", "the app raises", [Send(upgrade("/error")), Eof()]),
    Case("handshake", "the app returns", [Send(upgrade("/ends")), Eof()]),
    Case("handshake", "data before the accept", [Send(upgrade("/wrong")), Eof()]),
    Case("handshake", "the client leaves", [Send(upgrade("/wait")), Noted(), Leave(), Noted(2)]),
    Case("handshake", "the client resets", [Send(upgrade("/wait")), Noted(), Leave(reset=True), Noted(2)]),
]

ENDS = [
    *(
        Case(
            "close",
            f"{name} by the client",
            [Send(upgrade("/echo")), ACCEPTED, Send(data), Until(answer), HalfClose(), Eof(), Noted()],
        )
        for name, data, answer in (
            ("1000", closing(1000), b"\x03\xe8"),
            ("1001", closing(1001, "away"), b"\x03\xe9away"),
            ("4321 with a reason", closing(4321, "because é"), "because é".encode()),
            ("no code", frame(CLOSE, b""), b"\x88\x00"),
        )
    ),
    *(
        Case(
            "close",
            f"{name} by the app",
            [
                Send(upgrade(f"/close/{path}")),
                ACCEPTED,
                Until(code),
                Send(frame(CLOSE, code)),
                HalfClose(),
                Eof(),
                Noted(),
            ],
            differs=OWN_CODE,
        )
        for name, path, code in (
            ("no code", "", b"\x03\xe8"),
            ("1001", "1001", b"\x03\xe9"),
            ("4321 with a reason", "4321/because", b"\x10\xe1because"),
        )
    ),
    Case("close", "the client breaks off", [Send(upgrade("/echo")), ACCEPTED, Leave(), Noted()]),
    Case("close", "the client resets", [Send(upgrade("/echo")), ACCEPTED, Leave(reset=True), Noted()]),
    Case("close", "half-closed by the client", [Send(upgrade("/echo")), ACCEPTED, HalfClose(), Eof(), Noted()]),
    Case("close", "while the app sends", [Send(upgrade("/deaf")), Until(b"first"), Leave(reset=True), Gate(), Noted()]),
    Case("close", "the app raises", [Send(upgrade("/error/late")), Until(b"first"), Send(frame(TEXT, b"go")), Eof()]),
    Case("close", "the app returns", [Send(upgrade("/ends/late")), Until(b"first"), Send(frame(TEXT, b"go")), Eof()]),
    Case("close", "a second accept", [Send(upgrade("/wrong/late")), ACCEPTED, Eof()]),
    Case(
        "close",
        "text that is not UTF-8",
        [
            Send(upgrade("/echo")),
            ACCEPTED,
            Send(frame(TEXT, b"\xff\xfe")),
            HalfClose(),
            Eof(),
            Noted(),
        ],
    ),
    Case(
        "close",
        "a message that is too large",
        [
            Send(upgrade("/echo")),
            ACCEPTED,
            Send(frame(BINARY, b"x" * 2_100_000), at_once=True),
            Until(b"\x03\xf1"),
            Leave(),
            Noted(),
        ],
        only=("httptools", "zttp"),  # `websockets` waits 10 s for its client then, left or not
    ),
]

CASES = [*HANDSHAKES, *MESSAGES, *ENDS]
