"""WebSockets through the relay: every message either way, back-pressure, and the end of either side."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pytest
from relay.conftest import Run
from relay.pair import OWNER, Pair, nobody_listens, settled, until
from relay.test_death import owner

from supervisor.relay.body import BodyReplay
from supervisor.relay.frames import Ack, Open
from supervisor.relay.once import OwnersAppFailed
from supervisor.relay.outcomes import Draining, Gone, Late, NotOwner, Order, Outcome, OwnerLost, Refused, Taken

KIB = 1024
MIB = 1024 * KIB
Message = dict[str, Any]

ACCEPT: Message = {"type": "websocket.accept"}
CLOSE: Message = {"type": "websocket.close", "code": 1000}


def sent(data: str | bytes) -> Message:
    return {"type": "websocket.send", "text" if isinstance(data, str) else "bytes": data}


def received(data: str | bytes) -> Message:
    return {"type": "websocket.receive", "text" if isinstance(data, str) else "bytes": data}


def gone(code: int, **more: Any) -> Message:
    return {"type": "websocket.disconnect", "code": code, **more}


def scope_of(**more: Any) -> Message:
    """A websocket scope as uvicorn makes it."""
    return {
        "type": "websocket",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "scheme": "ws",
        "server": ("127.0.0.1", 8000),
        "client": ("10.1.2.3", 50123),
        "root_path": "/root",
        "path": "/root/café",
        "raw_path": b"/root/caf%C3%A9",
        "query_string": b"a=%20&a=\xff",
        "headers": [(b"host", b"h"), (b"x-odd", b"\xe9\xff"), (b"cookie", b"a=1"), (b"cookie", b"b=2")],
        "subprotocols": ["soap", "wamp", "soap.2"],
        "state": {"of": "the acceptor"},
        "extensions": {"websocket.http.response": {}, "something.else": {}},
    } | more


class Client:
    """A WebSocket client as its server shows it to an app."""

    def __init__(self, *messages: Message) -> None:
        self.queue: deque[Message] = deque([{"type": "websocket.connect"}, *messages])
        self.messages: list[Message] = []
        self.taken = 0
        self.left = False
        self.gate = asyncio.Event()
        self.gate.set()
        self._changed = asyncio.Event()

    def say(self, *messages: Message) -> None:
        self.queue += messages
        self._changed.set()

    async def receive(self) -> Message:
        while not self.queue:
            self._changed.clear()
            await self._changed.wait()
        self.taken += 1
        return self.queue.popleft()

    async def send(self, message: Message) -> None:
        await self.gate.wait()
        if self.left:
            raise OSError
        self.messages.append(message)
        if message["type"] == "websocket.close":  # as uvicorn: an app that has closed hears its own code
            self.say(gone(message.get("code", 1000)))

    @property
    def accepted(self) -> bool:
        return any(message["type"] == "websocket.accept" for message in self.messages)


async def relay(pair: Pair, client: Client, scope: Message | None = None, **order: Any) -> Outcome:
    order.setdefault("owner", OWNER)
    body = BodyReplay(client.receive)
    return await pair.client.relay_websocket(Order(**order), scope or scope_of(), body, client.send)


def test_what_the_app_sees(run: Run) -> None:
    """The scope is the client's but for the state and what no relay can carry; its first message is the opening."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)
        seen.append(await receive())
        await send(ACCEPT)
        seen.append(await receive())

    async def test() -> None:
        async with Pair(app) as pair:
            assert await relay(pair, Client(gone(1001, reason="bye"))) == Taken()

    run(test())
    expected = scope_of(state={"of": "the owner"}, extensions={"websocket.http.response": {}})
    assert seen == [expected, {"type": "websocket.connect"}, gone(1001, reason="bye")]


@pytest.mark.parametrize(
    ("messages", "came"),
    [
        ([ACCEPT, CLOSE], [ACCEPT, CLOSE]),
        (
            [{**ACCEPT, "subprotocol": "wamp", "headers": [(b"set-cookie", b"a"), (b"set-cookie", b"b=\xff")]}, CLOSE],
            [{**ACCEPT, "subprotocol": "wamp", "headers": [[b"set-cookie", b"a"], [b"set-cookie", b"b=\xff"]]}, CLOSE],
        ),
        (
            [{**ACCEPT, "subprotocol": None, "headers": ()}, CLOSE],
            [{**ACCEPT, "subprotocol": None, "headers": []}, CLOSE],
        ),
        ([ACCEPT, sent("é"), sent(b"\xff"), sent(""), sent(b""), CLOSE],) * 2,
        (
            [ACCEPT, {**sent("a"), "bytes": None}, {**sent(b"b"), "text": None}, {"type": "websocket.send"}, CLOSE],
            [ACCEPT, sent("a"), sent(b"b"), CLOSE],
        ),
        ([ACCEPT, {**CLOSE, "code": 4321, "reason": "because"}],) * 2,
        ([{**CLOSE, "code": 4000}],) * 2,
        ([ACCEPT],) * 2,
        (
            [
                {"type": "websocket.http.response.start", "status": 418, "headers": [(b"x", b"1"), (b"x", b"2")]},
                {"type": "websocket.http.response.body", "body": b"tea", "more_body": True},
                {"type": "websocket.http.response.body", "body": b"pot"},
            ],
            [
                {"type": "websocket.http.response.start", "status": 418, "headers": [[b"x", b"1"], [b"x", b"2"]]},
                {"type": "websocket.http.response.body", "body": b"teapot", "more_body": False},
            ],
        ),
    ],
    ids=["plain", "head", "empty head", "data", "both kinds", "close", "refused", "left open", "denial"],
)
def test_what_the_client_sees(run: Run, messages: list[Message], came: list[Message]) -> None:
    """Each message of the app's reaches the client's server, in order."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    async def test() -> None:
        async with Pair(app) as pair:
            client = Client()
            assert await relay(pair, client) == Taken()
            assert client.messages == came
            assert pair.client.idle == 0

    run(test())


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Sends back what comes, until the client leaves."""
    await send(ACCEPT)
    await receive()
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message.get("text"), "bytes": message.get("bytes")})


@pytest.mark.parametrize("data", ["", "é" * 10, b"\xff" * 16384, "é" * 30000, b"x" * 5 * MIB, "ü" * 3 * MIB])
def test_messages_of_any_size(run: Run, data: str | bytes) -> None:
    """Text and binary messages come whole and in order, up and down, whatever their size."""

    async def test() -> None:
        async with Pair(echo) as pair:
            client = Client(received(data), received("x"), received(data))
            task = asyncio.ensure_future(relay(pair, client))
            await until(lambda: len(client.messages) == 4)
            client.say(gone(1000))
            assert await task == Taken()
            assert client.messages == [ACCEPT, sent(data), sent("x"), sent(data)]

    run(test())


def test_many_tasks_send_at_once(run: Run) -> None:
    """Large messages of several tasks do not mix."""
    texts = [letter * (MIB + n) for n, letter in enumerate("abcd")]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(ACCEPT)
        await asyncio.gather(*(send(sent(text)) for text in texts), send(sent("small")))

    async def test() -> None:
        async with Pair(app) as pair:
            client = Client()
            assert await relay(pair, client) == Taken()
            assert client.messages == [ACCEPT, *map(sent, texts), sent("small")]

    run(test())


@pytest.mark.parametrize("size", [100, 64 * KIB, 1 * MIB])
def test_a_stalled_client_stops_the_app(run: Run, size: int) -> None:
    """An app can be a few MiB ahead of a client that does not read; when it does, all comes."""
    total = 16 * MIB if size > KIB else 4 * MIB
    done = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal done
        await send(ACCEPT)
        for _ in range(total // size):
            await send(sent(b"x" * size))
            done += size

    async def test() -> None:
        async with Pair(app) as pair:
            client = Client()
            client.gate.clear()
            task = asyncio.ensure_future(relay(pair, client))
            await until(lambda: pair.ran)
            assert await settled(lambda: done) < 4 * MIB - size
            client.gate.set()
            assert await task == Taken()
            assert sum(len(message.get("bytes", b"")) for message in client.messages) == total // size * size

    run(test())


@pytest.mark.parametrize("size", [100, 64 * KIB, 1 * MIB])
def test_a_stalled_app_stops_the_client(run: Run, size: int) -> None:
    """The other way round: what is not read is not fetched from the client's server beyond a few MiB."""
    count = (16 * MIB if size > KIB else 4 * MIB) // size
    go = asyncio.Event()
    got = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal got
        await send(ACCEPT)
        await go.wait()
        await receive()
        while (message := await receive())["type"] == "websocket.receive":
            got += len(message["bytes"])

    async def test() -> None:
        async with Pair(app) as pair:
            client = Client(*[received(b"x" * size)] * count, gone(1000))
            task = asyncio.ensure_future(relay(pair, client))
            await until(lambda: client.taken > 1)
            assert await settled(lambda: client.taken) * size < 4 * MIB
            go.set()
            assert await task == Taken()
            assert got == count * size

    run(test())


def test_a_client_that_leaves(run: Run) -> None:
    """The app gets its code, also before it has answered; what it sends then raises an OSError, as ASGI wants."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if scope["path"] == "/accepts":
            await send(ACCEPT)
        seen.append(await receive())
        try:
            await send(sent("x"))
        except OSError as error:
            seen.append(type(error).__name__)
            raise

    async def test() -> None:
        async with Pair(app) as pair:
            for path in ("/accepts", "/waits"):
                assert await relay(pair, Client(gone(1006)), scope_of(path=path)) == Taken()

    run(test())
    assert seen == [gone(1006), "ClientLeft"] * 2


def test_a_client_that_leaves_while_the_app_sends(run: Run) -> None:
    """What the app sent before it knew goes nowhere, and it hears of it."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(ACCEPT)
        while True:
            await send(sent(b"x" * 1000))

    async def test() -> None:
        async with Pair(app) as pair:
            client = Client()
            task = asyncio.ensure_future(relay(pair, client))
            await until(lambda: len(client.messages) > 10)
            client.left = True
            await asyncio.sleep(0)
            client.say(gone(1006))
            assert await task == Taken()

    run(test())


def test_an_app_hears_its_own_close(run: Run) -> None:
    """The server's disconnect after a close reaches the app."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(ACCEPT)
        await send({**CLOSE, "code": 4000})
        seen.append(await receive())

    async def test() -> None:
        async with Pair(app) as pair:
            assert await relay(pair, Client()) == Taken()

    run(test())
    assert seen == [gone(4000)]


BODY: Message = {"type": "websocket.http.response.body", "body": b"", "more_body": False}
START: Message = {"type": "websocket.http.response.start", "status": 403, "headers": []}


@pytest.mark.parametrize(
    "messages",
    [[sent("x")], [BODY], [ACCEPT, ACCEPT], [ACCEPT, START], [START, CLOSE], [CLOSE, CLOSE], [START, BODY, BODY]],
    ids=["data first", "body first", "two accepts", "denial after accept", "close in denial", "two closes", "after"],
)
def test_messages_that_do_not_belong(run: Run, messages: list[Message], caplog: pytest.LogCaptureFixture) -> None:
    """They raise in the app, as in a server of its own; the error is logged once, where the app runs."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    async def test() -> None:
        async with Pair(app) as pair:
            client = Client()
            with pytest.raises(OwnersAppFailed):
                await relay(pair, client)
            # A denial leaves whole or not at all.
            assert client.messages == ([] if messages[:2] == [START, CLOSE] else messages[:-1])

    run(test())
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [RuntimeError]


def test_an_app_that_does_not_answer(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Its client's server gets nothing, and makes its own 500 of that."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()

    async def test() -> None:
        async with Pair(app) as pair:
            client = Client()
            assert await relay(pair, client) == Taken()
            assert client.messages == []

    run(test())
    assert [record.message for record in caplog.records] == ["ASGI callable returned without completing handshake."]


@pytest.mark.parametrize(
    ("ack", "outcome"),
    [
        (Ack.not_owner(9), NotOwner(9)),
        (Ack.DRAINING, Draining()),
        (Ack.LATE, Late()),
        (Ack.GONE, Gone()),
        (Ack.refused("table_full", {"detail": "x"}), Refused("table_full", {"detail": "x"})),
    ],
    ids=["not owner", "draining", "late", "gone", "refused"],
)
def test_an_owner_that_does_not_take_it(run: Run, ack: Ack, outcome: Outcome) -> None:
    """Nothing is read of the client, so the WebSocket can go elsewhere; the connection is good for the next one."""

    async def admit(request: Open) -> Ack:
        return ack

    async def test() -> None:
        async with Pair(echo, admit=admit) as pair:
            client = Client()
            for _ in range(2):
                assert await relay(pair, client) == outcome
            assert client.taken == 0
            assert client.messages == []
            assert pair.client.idle == 1
            assert not pair.ran

    run(test())


def test_another_worker_behind_the_socket(run: Run) -> None:
    """A worker that the acceptor did not mean refuses before it asks anybody."""

    async def test() -> None:
        async with Pair(echo) as pair:
            pair.server.incarnation = 8
            assert await relay(pair, Client()) == NotOwner()
            assert not pair.admitted

    run(test())


def test_an_owner_that_is_dead_already(run: Run) -> None:
    """Nobody listens and the row says so: the session is gone."""

    async def test() -> None:
        async with Pair(echo, live=lambda _: False) as pair:
            nobody_listens(pair.path_of(9))
            assert await relay(pair, Client(), owner=9) == Gone()

    run(test())


@pytest.mark.parametrize(
    ("path", "outcome", "came"),
    [
        ("/admit", Gone(), []),
        ("/first-line", OwnerLost(started=False), []),
        (
            "/accepted",
            OwnerLost(started=True),
            [ACCEPT, {"type": "websocket.close", "code": 1012, "reason": "session_gone"}],
        ),
        ("/closed", OwnerLost(started=True), [ACCEPT, CLOSE]),
    ],
)
def test_a_killed_owner(run: Run, path: str, outcome: Outcome, came: list[Message]) -> None:
    """Before the answer the session is gone, and a reply can still be made; after it the client is closed with 1012."""

    async def test() -> None:
        async with owner() as process:
            client = Client()
            scope, body = scope_of(path=path), BodyReplay(client.receive)
            assert await process.client.relay_websocket(Order(OWNER), scope, body, client.send) == outcome
            assert client.messages == came

    run(test())


@pytest.mark.parametrize("whole", [True, False], ids=["server", "websockets"])
def test_an_owner_that_stops(run: Run, whole: bool) -> None:
    """Client and app are told 1012; a handshake that nobody has answered is left to the client's server."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if scope["path"] == "/accepts":
            await send(ACCEPT)
        seen.append(await receive())
        with pytest.raises(OSError):
            await send(CLOSE)

    async def test() -> None:
        async with Pair(app) as pair:
            clients = [Client(), Client()]
            paths = ("/accepts", "/waits")
            tasks = [
                asyncio.ensure_future(relay(pair, c, scope_of(path=p))) for c, p in zip(clients, paths, strict=True)
            ]
            await until(lambda: clients[0].accepted and len(pair.ran) == 2)
            await asyncio.sleep(0.01)
            if whole:
                pair.server.close()
            else:
                pair.server.close_websockets()
            await asyncio.wait(tasks)
            assert type(tasks[0].result()) in (Taken, OwnerLost)
            assert type(tasks[1].exception()) is OwnersAppFailed
            assert clients[0].messages == [ACCEPT, {"type": "websocket.close", "code": 1012}]
            assert clients[1].messages == []

    run(test())
    assert seen == [gone(1012)] * 2


def test_an_acceptor_that_dies(run: Run) -> None:
    """The app gets 1006, after what had come before."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(ACCEPT)
        for _ in range(3):
            seen.append(await receive())

    async def test() -> None:
        async with Pair(app) as pair:
            client = Client(received("x"))
            task = asyncio.ensure_future(relay(pair, client))
            await until(lambda: client.accepted and client.taken == 2)
            await until(lambda: seen)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: not pair.tasks)

    run(test())
    assert seen == [received("x"), gone(1006), gone(1006)]


def test_an_app_that_ends_while_its_client_goes_on(run: Run) -> None:
    """What still comes is dropped, and both ends of the connection are closed."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(ACCEPT)
        await receive()
        await receive()

    async def test() -> None:
        async with Pair(app) as pair:
            client = Client(*[received(b"x" * 100_000)] * 200)
            assert await relay(pair, client) == Taken()
            await until(lambda: not pair.server.channels)
            assert pair.client.busy == 0

    run(test())
