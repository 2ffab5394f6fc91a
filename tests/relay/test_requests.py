"""What an owner's app sees of a request, what the client sees of its reply, and who is asked before anything runs."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from relay.conftest import Run
from relay.pair import OWNER, App, Client, Pair, echo, read_all, reply, scope_of, until

from supervisor.relay import peer as peer_module
from supervisor.relay.body import BodyReplay
from supervisor.relay.frames import MAX_STRUCT, Ack, Open
from supervisor.relay.outcomes import Draining, Gone, NotOwner, Order, Outcome, Refused, Taken, Unreachable

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


def test_websockets_are_refused(run: Run) -> None:
    """A WebSocket that reaches the relay all the same is not run as something else."""

    async def test() -> None:
        async with Pair(echo) as pair:
            scope = scope_of(type="websocket")
            del scope["method"]
            outcome = await pair.relay(Client(), scope)
            assert outcome == Refused("owner_unreachable", {"detail": "websocket is not relayed"})
            assert pair.admitted == []

    run(test())


async def raises_first(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("kaputt")


async def raises_later(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    raise RuntimeError("kaputt")


async def returns_early(scope: Any, receive: Any, send: Any) -> None:
    await receive()


async def returns_halfway(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})


ERRORS: dict[str, tuple[App, bool, str]] = {
    "raises before the head": (raises_first, True, "Exception in ASGI application"),
    "raises after the head": (raises_later, False, "Exception in ASGI application"),
    "returns without a reply": (returns_early, True, "without starting response"),
    "returns without an end": (returns_halfway, False, "without completing response"),
}


@pytest.mark.parametrize(("app", "answered", "logs"), ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("mode", ["owned", "placed"])
def test_errors_of_the_app(
    run: Run, caplog: pytest.LogCaptureFixture, app: App, answered: bool, logs: str, mode: str
) -> None:
    """An app that fails before its head is a 500, afterwards a reply without its end; it is logged once, by the owner;
    the connection serves the next request.
    """

    async def test() -> None:
        async with Pair(app) as pair:
            client = Client(b"x")
            outcome = await pair.relay(client, mode=mode)
            assert outcome == Taken(complete=answered)
            if answered:
                assert (client.status, client.body) == (500, b"Internal Server Error")
                assert (b"connection", b"close") in client.headers
            else:
                assert client.body == b"half"
            assert client.complete is answered
            assert len(caplog.records) == 1
            assert logs in caplog.text
            assert ("kaputt" in caplog.text) is (app in (raises_first, raises_later))
            assert pair.client.idle == 1

    with caplog.at_level(logging.INFO):
        run(test())


def test_admission_fails(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """An admission that raises is logged, and the client gets a 500."""

    async def admit(request: Open) -> Ack:
        raise RuntimeError("kaputt")

    async def test() -> None:
        async with Pair(echo, admit=admit) as pair:
            outcome, client = await pair.ask()
            assert (outcome, client.status, pair.ran) == (Taken(), 500, [])
        assert "kaputt" in caplog.text

    run(test())


def test_messages_out_of_order(run: Run) -> None:
    """An app that sends the wrong message hears it, as from a server, and may go on."""
    heard = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in ("http.response.body", "http.response.trailers", "x"):
            with pytest.raises(RuntimeError, match="expected ASGI message 'http.response.start'"):
                await send({"type": message, "body": b""})
        await send({"type": "http.response.start", "status": 200, "headers": []})
        with pytest.raises(RuntimeError, match=r"expected ASGI message 'http.response.body'"):
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})
        with pytest.raises(RuntimeError, match="the reply is complete"):
            await send({"type": "http.response.body", "body": b"more"})
        heard.append(True)

    async def test() -> None:
        async with Pair(app) as pair:
            outcome, client = await pair.ask()
            assert (outcome, client.body) == (Taken(), b"ok")
            await until(lambda: heard)

    run(test())


def huge(where: str) -> App:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/small":
            await reply()(scope, receive, send)
            return
        start = {"type": "http.response.start", "status": 200, "headers": [(b"x", b"y" * (MAX_STRUCT + 1))]}
        if where == "another task":
            await asyncio.create_task(send(start))
        else:
            await send(start)
        if where == "waits":
            await asyncio.sleep(0)
        if where != "another task":
            await send({"type": "http.response.body", "body": b"ok"})
        else:
            await receive()
            assert (await receive())["type"] == "http.disconnect"

    return app


@pytest.mark.parametrize("where", ["at once", "waits", "another task"])
def test_reply_head_too_large(run: Run, caplog: pytest.LogCaptureFixture, where: str) -> None:
    """A reply's head that no frame carries is an error of the app, wherever it was sent from."""

    async def test() -> None:
        async with Pair(huge(where)) as pair:
            outcome, client = await pair.ask()
            assert (outcome, client.status) == (Taken(), 500)
            assert "it may have" in caplog.text
            outcome, client = await pair.ask("GET", "/small")
            assert (outcome, client.status) == (Taken(), 200)

    run(test())


def test_request_head_too_large(run: Run) -> None:
    """A request's head that no frame carries goes nowhere, with a reason."""

    async def test() -> None:
        async with Pair(echo) as pair:
            outcome, client = await pair.ask(headers=[(b"x", b"y" * (MAX_STRUCT + 1))])
            assert type(outcome) is Unreachable
            assert "it may have" in outcome.reason
            assert not client.started
            assert pair.admitted == []

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


def test_no_task_per_message(run: Run) -> None:
    """A small request takes one task at the owner and none at the acceptor; a stream takes no more, however long."""

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(300):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await (stream if scope["path"] == "/stream" else echo)(scope, receive, send)

    async def test() -> None:
        made = 0
        loop = asyncio.get_running_loop()

        def factory(loop: Any, coroutine: Any, **more: Any) -> Any:
            nonlocal made
            made += 1
            return asyncio.Task(coroutine, loop=loop, **more)

        async with Pair(app) as pair:
            await pair.ask()
            loop.set_task_factory(factory)
            await pair.ask("POST", "/", b"x")
            assert made == 1
            await pair.ask("GET", "/stream")
            assert made == 2
            await pair.relay(Client(*[b"x" * 1000] * 300))  # one more, which carries the body up
            assert made == 4
            loop.set_task_factory(None)

    run(test())


def test_two_workers_that_relay_to_each_other(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request never waits for a place in a pool: apps that call each other through the relay do not dead-lock."""
    monkeypatch.setattr(peer_module, "MAX_IDLE", 1)
    pairs: list[Pair] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        depth = int(scope["path"][1:])
        if depth:
            outcome, _client = await pairs[depth % 2].ask("GET", f"/{depth - 1}")
            assert outcome == Taken()
        await reply()(scope, receive, send)

    async def test() -> None:
        async with Pair(app) as one, Pair(app) as two:
            pairs.extend((one, two))
            answers = await asyncio.gather(*(pairs[n % 2].ask("GET", "/6") for n in range(20)))
            assert [outcome for outcome, _ in answers] == [Taken()] * 20
            assert max(one.client.idle, two.client.idle) <= 1

    run(test())


def test_one_connection_for_requests_in_a_row(run: Run) -> None:
    """Requests in a row share a connection; requests at once have one each, of which the idle ones are capped."""

    async def test() -> None:
        async with Pair(echo) as pair:
            for _ in range(5):
                await pair.ask()
            assert len(pair.server.channels) == 1
            await asyncio.gather(*(pair.ask() for _ in range(peer_module.MAX_IDLE + 20)))
            assert pair.client.idle == peer_module.MAX_IDLE
            assert pair.client.busy == 0
            await until(lambda: len(pair.server.channels) == peer_module.MAX_IDLE)

    run(test())


def test_connections_that_are_not_needed_close(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle connections that were not used for a while are closed; one that is in use is kept."""
    monkeypatch.setattr("supervisor.relay.client.TRIM_SECONDS", 0.02)

    async def test() -> None:
        async with Pair(echo) as pair:
            await asyncio.gather(*(pair.ask() for _ in range(10)))
            assert pair.client.idle == 10
            while pair.client.idle > 1:
                await pair.ask()
                await asyncio.sleep(0.001)
            await until(lambda: not pair.client.idle)
            await until(lambda: not pair.server.channels)

    run(test())
