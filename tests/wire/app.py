"""What the wire's cases ask for: each route is one case of HTTP or WebSocket, told by an app that does no more.

Requests name their case in `x-case`. What the app notes of it is in GET /notes, how far it is in GET /progress; where
it waits for its client's word, that is GET /gate.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import defaultdict
from typing import Any

from whole.handing import change_handing
from wire.sockets import socket

change_handing(os.environ.get("HANDING"))
NOTES: defaultdict[str, list[Any]] = defaultdict(list)
PROGRESS: defaultdict[str, int] = defaultdict(int)
GATES: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(0))
TEXT = [(b"content-type", b"text/plain")]
KEYS = ("http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path", "headers", "extensions")
ODD: dict[str, tuple[Any, int, bytes]] = {
    "plain": ([(b"content-length", b"5")], 200, b"hello"),
    "no-length": (TEXT, 200, b"hello"),
    "no-body": ([], 200, b""),
    "too-short": ([(b"content-length", b"10")], 200, b"half"),
    "too-long": ([(b"content-length", b"2")], 200, b"hello"),
    "two-lengths": ([(b"content-length", b"5"), (b"content-length", b"5")], 200, b"hello"),
    "no-number": ([(b"content-length", b"five")], 200, b"hello"),
    "title-case": ([(b"Content-Length", b"5"), (b"X-Mixed", b"1")], 200, b"hello"),
    "bad-name": ([(b"content-length", b"5"), (b"x y", b"1")], 200, b"hello"),
    "bad-value": ([(b"content-length", b"5"), (b"x-y", b"1\r\nx-injected: 2")], 200, b"hello"),
    "chunked": ([(b"transfer-encoding", b"chunked")], 200, b"hello"),
    "own-date": ([(b"content-length", b"5"), (b"date", b"x"), (b"server", b"mine")], 200, b"hello"),
    "204-with-body": ([(b"content-length", b"5")], 204, b"hello"),
    "304-with-length": ([(b"content-length", b"5")], 304, b""),
    "1xx": ([], 103, b""),
    "999": ([(b"content-length", b"5")], 999, b"hello"),
    "tuple": (((b"content-length", b"5"), [b"x-list", b"1"]), 200, b"hello"),
}


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Serve."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    case = dict(scope["headers"]).get(b"x-case", b"").decode()
    if scope["type"] == "websocket":
        await socket(Ask(case, scope, receive, send))
        return
    await Ask(case, scope, receive, send).serve()


class Ask:
    """One request or WebSocket."""

    def __init__(self, case: str, scope: Any, receive: Any, send: Any) -> None:
        self.case = case
        self.scope = scope
        self.receive = receive
        self.send = send

    def note(self, what: Any) -> None:
        """For GET /notes."""
        NOTES[self.case].append(what)

    def at(self, count: int) -> None:
        """For GET /progress."""
        PROGRESS[self.case] = count

    async def gate(self) -> None:
        """Wait for a GET /gate."""
        await GATES[self.case].acquire()

    async def start(self, headers: Any = TEXT, status: int = 200, **more: Any) -> None:
        """The head."""
        await self.send({"type": "http.response.start", "status": status, "headers": headers, **more})

    async def body(self, data: bytes = b"", *, more: bool = False) -> None:
        """A piece of the body."""
        await self.send({"type": "http.response.body", "body": data, "more_body": more})

    async def whole(self, data: bytes, headers: Any = TEXT, status: int = 200) -> None:
        """A small reply."""
        await self.start([*headers, (b"content-length", b"%d" % len(data))], status)
        await self.body(data)

    async def read(self) -> bytes:
        """The whole body; notes its end when the client leaves before it."""
        body, more = bytearray(), True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                self.note("left in the body")
                return bytes(body)
            body += message["body"]
            self.at(len(body))
            more = message["more_body"]
        return bytes(body)

    async def serve(self) -> None:
        """By its route."""
        scope = self.scope
        name, _, argument = scope["path"].removeprefix(scope["root_path"])[1:].partition("/")
        await getattr(self, "do_" + name.replace("-", "_"), self.do_scope)(argument)

    # what tests ask for

    async def do_whoami(self, _: str) -> None:
        await self.whole(str(os.getpid()).encode())

    async def do_notes(self, _: str) -> None:
        await self.whole(json.dumps(NOTES[self.case]).encode())

    async def do_progress(self, _: str) -> None:
        await self.whole(str(PROGRESS[self.case]).encode())

    async def do_gate(self, _: str) -> None:
        GATES[self.case].release()
        await self.whole(b"")

    # cases

    async def do_scope(self, _: str) -> None:
        client = self.scope["client"]
        extensions = self.scope.get("extensions")
        seen = [self.scope.get(key) for key in KEYS[:-1]]
        names = None if extensions is None else sorted(name for name in extensions if name != "gym_supervise")
        await self.whole(repr([seen, names or None, client and client[0]]).encode())

    async def do_length(self, _: str) -> None:
        await self.start([*TEXT, (b"content-length", b"5")])
        await self.body(b"he", more=True)
        await self.body(b"llo")

    async def do_chunked(self, _: str) -> None:
        await self.start()
        await self.body(b"hello ", more=True)
        await self.gate()
        await self.body(b"world")

    async def do_empty_pieces(self, _: str) -> None:
        await self.start()
        await self.body(b"", more=True)
        await self.body(b"x", more=True)
        await self.gate()
        await self.body(b"", more=True)
        await self.body(b"")

    async def do_status(self, status: str) -> None:
        code = int(status)
        await self.start([(b"etag", b'"x"')] if code in {204, 304} else [*TEXT, (b"content-length", b"0")], code)
        await self.body()

    async def do_cookies(self, _: str) -> None:
        cookies = [value for name, value in self.scope["headers"] if name == b"cookie"]
        headers = [(b"set-cookie", b"a=1; Path=/"), (b"x-b", b"\xe9"), (b"set-cookie", b"b=2"), (b"set-cookie", b"a=3")]
        await self.whole(b"|".join(cookies), headers)

    async def do_header(self, size: str) -> None:
        await self.whole(b"ok", [(b"x-long", b"x" * int(size)), (b"set-cookie", b"y" * int(size))])

    async def do_one(self, kind: str) -> None:
        """A reply in one message, with a head that is odd in some way."""
        headers, status, body = ODD[kind]
        await self.start(headers, status)
        await self.body(body)

    async def do_hop(self, _: str) -> None:
        await self.whole(b"ok", [(b"keep-alive", b"timeout=5"), (b"x-kept", b"1"), (b"connection", b"close")])

    async def do_echo(self, _: str) -> None:
        await self.whole(await self.read())

    async def do_mirror(self, _: str) -> None:
        """Each piece that comes is answered at once."""
        await self.start()
        more = True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                self.note("left")
                return
            more = message["more_body"]
            if message["body"]:
                await self.body(b"<" + message["body"] + b">", more=True)
        await self.body(b"end")

    async def do_refuse(self, _: str) -> None:
        await self.whole(b"nope", status=413)

    async def do_error(self, _: str) -> None:
        raise RuntimeError("asked for")

    async def do_late_error(self, _: str) -> None:
        await self.start()
        await self.body(b"half", more=True)
        await self.gate()
        raise RuntimeError("asked for")

    async def do_short(self, _: str) -> None:
        await self.start([(b"content-length", b"10")])
        await self.body(b"half", more=True)
        await self.gate()

    async def do_nothing(self, _: str) -> None:
        """Not even a head."""

    async def do_events(self, count: str) -> None:
        """Each event waits for the client's word that it has the one before."""
        await self.start([(b"content-type", b"text/event-stream")])
        for number in range(int(count)):
            await self.body(b"data: %d\n\n" % number, more=True)
            await self.gate()
        await self.body()

    async def do_burst(self, count: str) -> None:
        """Events that are ready together."""
        await self.start([(b"content-type", b"text/event-stream")])
        for number in range(int(count)):
            await self.body(b"data: %d\n\n" % number, more=True)
        await self.body()

    async def do_endless(self, _: str) -> None:
        """A stream that ends when its client leaves."""
        await self.start([(b"content-type", b"text/event-stream")])
        await self.body(b"data: first\n\n", more=True)
        await self.read()
        self.note((await self.receive())["type"])

    async def do_wait(self, _: str) -> None:
        """No head before the client has left."""
        self.note((await self.receive())["type"])
        self.note("waits")
        self.note((await self.receive())["type"])
        await self.whole(b"too late")

    async def do_after(self, _: str) -> None:
        """What the app hears after a complete reply."""
        await self.read()
        await self.whole(b"done")
        self.note((await self.receive())["type"])

    async def do_hints(self, _: str) -> None:
        if "http.response.early_hint" in (self.scope.get("extensions") or {}):
            await self.send({"type": "http.response.early_hint", "links": [b"</a.css>; rel=preload", b"</b.js>"]})
            await self.send({"type": "http.response.early_hint", "links": [b"</c.js>"]})
        await self.whole(b"hinted")

    async def do_trailers(self, _: str) -> None:
        offered = "http.response.trailers" in (self.scope.get("extensions") or {})
        await self.start(trailers=offered)
        await self.body(b"body")
        if offered:
            trailers = {"type": "http.response.trailers", "headers": [(b"x-sum", b"1")], "more_trailers": True}
            await self.send(trailers)
            await self.send({**trailers, "headers": [(b"x-end", b"2")], "more_trailers": False})

    async def do_flood(self, size: str) -> None:
        """A large reply to a client that may be slow."""
        total = int(size)
        await self.start([(b"content-length", b"%d" % total)])
        for sent in range(0, total, 65536):
            await self.body(b"z" * 65536, more=True)
            self.at(sent + 65536)
        await self.body()

    async def do_lump(self, size: str) -> None:
        """The same in one message."""
        await self.whole(bytes(range(256)) * (int(size) // 256))

    async def do_late_read(self, _: str) -> None:
        """Reads when it is told to."""
        await self.gate()
        await self.whole(b"%d" % len(await self.read()))
