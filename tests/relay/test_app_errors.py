"""Apps that raise, return too early, or send what cannot be sent."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from relay.conftest import Run
from relay.pair import App, Client, Pair, echo, reply, until

from supervisor.relay.frames import MAX_STRUCT, Ack, Open
from supervisor.relay.outcomes import Taken, Unreachable


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


@pytest.mark.parametrize(("app", "unanswered", "logs"), ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("mode", ["owned", "placed"])
def test_errors_of_the_app(
    run: Run, caplog: pytest.LogCaptureFixture, app: App, unanswered: bool, logs: str, mode: str
) -> None:
    """An app that fails before its head leaves the 500 to the acceptor's server, afterwards a reply without its end;
    it is logged once, by the owner; the connection serves the next request.
    """

    async def test() -> None:
        async with Pair(app) as pair:
            client = Client(b"x")
            assert await pair.relay(client, mode=mode) == Taken(complete=False)
            assert client.started is not unanswered
            assert client.body == (b"" if unanswered else b"half")
            assert not client.complete
            assert len(caplog.records) == 1
            assert logs in caplog.text
            assert ("kaputt" in caplog.text) is (app in (raises_first, raises_later))
            assert pair.client.idle == 1

    with caplog.at_level(logging.INFO):
        run(test())


def test_admission_fails(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """An admission that raises is logged, and the client gets its server's 500."""

    async def admit(request: Open) -> Ack:
        raise RuntimeError("kaputt")

    async def test() -> None:
        async with Pair(echo, admit=admit) as pair:
            outcome, client = await pair.ask()
            assert (outcome, client.messages, pair.ran) == (Taken(complete=False), [], [])
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
        if where == "more":
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        if where in {"waits", "more"}:
            await asyncio.sleep(0)
        if where != "another task":
            await send({"type": "http.response.body", "body": b"ok"})
        else:
            await receive()
            assert (await receive())["type"] == "http.disconnect"

    return app


@pytest.mark.parametrize("where", ["at once", "waits", "more", "another task"])
def test_reply_head_too_large(run: Run, caplog: pytest.LogCaptureFixture, where: str) -> None:
    """A reply's head that no frame carries is an error of the app, wherever it was sent from."""

    async def test() -> None:
        async with Pair(huge(where)) as pair:
            outcome, client = await pair.ask()
            assert (outcome, client.messages) == (Taken(complete=False), [])
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
