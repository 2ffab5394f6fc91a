"""What an owner's app sees of a request, what the client sees of its reply, and who is asked before anything runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from relay.conftest import Run
from relay.pair import OWNER, Client, Pair, echo, read_all, reply, scope_of

from supervisor.relay.body import BodyReplay
from supervisor.relay.frames import Ack, Open
from supervisor.relay.outcomes import Draining, Gone, Late, NotOwner, Order, Outcome, Refused, Taken

SCOPES = {
    "plain": scope_of("GET", "/x"),
    "raw path": scope_of(path="/caf\u00e9/a/b", raw_path=b"/caf%C3%A9/a%2Fb", query_string=b"a=%20&a=\xff"),
    "root path": scope_of(path="/api/x", raw_path=b"/api/x", root_path="/api"),
    "duplicates": scope_of(headers=[(b"cookie", b"a=1"), (b"x-y", b"\xe9"), (b"cookie", b"a=2"), (b"cookie", b"a=1")]),
    "HTTP/1.0": scope_of(http_version="1.0"),
    "HTTP/2": scope_of(http_version="2", asgi={"version": "3.0", "spec_version": "2.5"}, scheme="https"),
    "Unix socket": scope_of(client=None, server=("/run/x.sock", None)),
    "offers": scope_of(extensions={"http.response.trailers": {}, "http.response.early_hint": {}}),
}


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
def test_scope(run: Run, scope: dict[str, Any]) -> None:
    """The owner's app sees the acceptor's scope, with the owner's own lifespan state, which it cannot spoil."""
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append({**scope, "state": dict(scope["state"])})
        scope["state"]["spoilt"] = True
        await reply()(scope, receive, send)

    async def test() -> None:
        async with Pair(app, state={"of": "the owner"}) as pair:
            for _ in range(2):
                await pair.relay(Client(), scope)
        assert seen == [scope | {"state": {"of": "the owner"}}] * 2

    run(test())


def test_extensions_that_cannot_be_relayed(run: Run) -> None:
    """An extension is offered to the owner's app only where the relay carries it."""
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["extensions"])
        await reply()(scope, receive, send)

    async def test() -> None:
        async with Pair(app) as pair:
            await pair.relay(
                Client(), scope_of(extensions={"http.response.pathsend": {}, "http.response.trailers": {}})
            )
        assert seen == [{"http.response.trailers": {}}]

    run(test())


def test_headers_of_the_order(run: Run) -> None:
    """The order's headers stand in for the scope's: the router may have put a new session in."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await reply(headers=scope["headers"])(scope, receive, send)

    async def test() -> None:
        async with Pair(app) as pair:
            client = Client()
            await pair.relay(client, scope_of(headers=[(b"a", b"1")]), headers=((b"b", b"2"), (b"b", b"3")))
            assert client.headers == [(b"b", b"2"), (b"b", b"3")]

    run(test())


def test_reply_unchanged(run: Run) -> None:
    """Status, header order, duplicates and bytes come through; headers between neighbours do not."""
    headers = [(b"set-cookie", b"a=1"), (b"x", b"\xff"), (b"set-cookie", b"b=2"), (b"set-cookie", b"a=1")]
    hops = [(b"connection", b"keep-alive, x"), (b"Keep-Alive", b"5"), (b"transfer-encoding", b"chunked")]

    async def test() -> None:
        async with Pair(reply(418, b"\x00\xff", hops + headers)) as pair:
            outcome, client = await pair.ask()
            assert outcome == Taken()
            assert (client.status, client.headers, client.body) == (418, headers, b"\x00\xff")
            assert len(client.messages) == 2

    run(test())


ACKS: dict[str, tuple[Ack, Outcome]] = {
    "not owner": (Ack.not_owner(), NotOwner(None)),
    "not owner but": (Ack.not_owner(12), NotOwner(12)),
    "draining": (Ack.DRAINING, Draining()),
    "late": (Ack.LATE, Late()),
    "gone": (Ack.GONE, Gone()),
    "refused": (
        Ack.refused("table_full", {"detail": "full", "worker": 3}),
        Refused("table_full", {"detail": "full", "worker": 3}),
    ),
}


@pytest.mark.parametrize(("ack", "outcome"), ACKS.values(), ids=ACKS)
@pytest.mark.parametrize("size", [3, 200_000], ids=["small", "large"])
def test_refusals(run: Run, ack: Ack, outcome: Outcome, size: int) -> None:
    """A refusal comes before anything runs; the body is still whole for another owner and for here; the connection
    serves the next request.
    """
    asked = []

    async def admit(request: Open) -> Ack:
        asked.append(request)
        return ack if len(asked) < 3 else Ack.OK

    async def test() -> None:
        async with Pair(echo, admit=admit) as pair:
            client = Client(b"x" * size, b"y" * size)
            body = BodyReplay(client.receive)
            for _ in range(2):
                found = await pair.client.relay(Order(OWNER, "placed", "abc", 6), scope_of("POST"), body, client.send)
                assert found == outcome
                assert pair.ran == []
                assert not client.started
            assert (asked[0].mode, asked[0].session, asked[0].flags) == ("placed", "abc", 6)
            assert len(pair.server.channels) == pair.client.idle == 1
            assert await pair.client.relay(Order(OWNER), scope_of("POST"), body, client.send) == Taken()
            assert client.body == b"x" * size + b"y" * size
            assert len(pair.server.channels) == pair.client.idle == 1
        body = BodyReplay(Client(b"x" * size, b"y" * size).receive)
        asked.clear()
        async with Pair(echo, admit=admit) as pair:
            assert await pair.client.relay(Order(OWNER), scope_of("POST"), body, client.send) == outcome
        assert await read_all(body) == b"x" * size + b"y" * size

    run(test())


def test_wrong_incarnation(run: Run) -> None:
    """A worker that is not the one that is meant says so by itself, and nobody there is asked."""

    async def test() -> None:
        async with Pair(echo) as pair:
            pair.client._path_of = lambda _: pair.path_of(OWNER)
            assert await pair.relay(Client(b"x"), owner=OWNER + 1) == NotOwner(None)
            assert pair.admitted == []
            assert (await pair.ask())[0] == Taken()

    run(test())


def test_app_goes_on_after_its_reply(run: Run) -> None:
    """A background task after the reply holds neither the connection nor the client, but it is still in flight."""
    go = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await reply()(scope, receive, send)
        assert (await receive())["type"] == "http.disconnect"
        if scope["path"] == "/slow":
            await go.wait()

    async def test() -> None:
        async with Pair(app) as pair:
            assert (await pair.ask("GET", "/slow"))[0] == Taken()
            for _ in range(3):
                assert (await pair.ask())[0] == Taken()
            assert len(pair.server.channels) == 1
            assert pair.server.in_flight == 1
            drained = asyncio.ensure_future(pair.server.drained())
            await asyncio.sleep(0)
            assert not drained.done()
            assert len(pair.tasks) == 1
            go.set()
            await drained

    run(test())


def test_trailers_and_hints(run: Run) -> None:
    """Early hints and trailers pass where the acceptor's server offers them."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.early_hint", "links": [b"</a>; rel=preload"]})
        await send({"type": "http.response.start", "status": 200, "headers": [], "trailers": True})
        await send({"type": "http.response.body", "body": b"ok"})
        await send({"type": "http.response.trailers", "headers": [(b"x", b"1")], "more_trailers": True})
        await send({"type": "http.response.trailers", "headers": [(b"y", b"2")]})

    async def test() -> None:
        async with Pair(app) as pair:
            for _ in range(2):
                outcome, client = await pair.ask()
                assert outcome == Taken()
                kinds = [message["type"].rpartition(".")[2] for message in client.messages]
                assert kinds == ["early_hint", "start", "body", "trailers", "trailers"]
                assert client.messages[0]["links"] == [b"</a>; rel=preload"]
                assert client.messages[1]["trailers"] is True
                assert [list(map(tuple, m["headers"])) for m in client.messages[3:]] == [[(b"x", b"1")], [(b"y", b"2")]]
            assert pair.client.idle == 1

    run(test())
