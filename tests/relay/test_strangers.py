"""Processes of other users, and of this one that do not speak the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

import pytest
from relay.conftest import Run
from relay.pair import OWNER, Client, Pair, echo, reply, until

from supervisor.relay.codec import TAKEN, encode, last_word, piece_word
from supervisor.relay.frames import Head, Open, Scope
from supervisor.relay.outcomes import Taken, Unreachable

SCOPE = Scope("http", "1.1", "GET", "http", "/slow", b"/slow", b"", "", None, None, {"version": "3.0"})


def test_stranger_at_the_socket(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """An acceptor sends nothing to a process of another user."""

    async def test() -> None:
        async with Pair(echo, client_uid=os.getuid() + 1) as pair:
            outcome = await pair.relay(Client(b"secret"))
            assert type(outcome) is Unreachable
            assert f"uid is {os.getuid()}, expected {os.getuid() + 1}" in outcome.reason
            assert outcome.reason in caplog.text
            await asyncio.sleep(0)
            assert pair.admitted == []

    run(test())


def test_stranger_that_connects(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """An owner serves nobody of another user."""

    async def test() -> None:
        async with Pair(echo, server_uid=os.getuid() + 1, reach_seconds=0.05) as pair:
            assert type(await pair.relay(Client(b"x"))) is Unreachable
            assert pair.admitted == []
            assert "connection refused" in caplog.text

    run(test())


@pytest.mark.parametrize("word", [b"garbage that is no frame", b"\x00\x00\x00\x00\x23"], ids=["garbage", "version 2"])
def test_owner_speaks_nonsense(run: Run, caplog: pytest.LogCaptureFixture, word: bytes) -> None:
    """An owner that breaks the protocol costs the client its reply, and is never asked a second time."""

    async def test() -> None:
        async with Pair(echo) as pair:
            asked = 0

            async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                nonlocal asked
                asked += 1
                await reader.read(100)
                writer.write(word)
                await reader.read()
                writer.close()

            listener = await asyncio.start_unix_server(accepted, pair.path_of(8))
            assert await pair.relay(Client(b"x"), owner=8) == Taken(complete=False)
            assert asked == 1
            assert "broke the protocol" in caplog.text
            listener.close()
            await until(lambda: len(asyncio.all_tasks()) == 1)

    run(test())


def test_bytes_on_an_idle_connection(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """An owner that speaks without being asked loses the connection: its words are not the next request's reply."""

    async def test() -> None:
        async with Pair(echo) as pair:
            await pair.ask()
            (channel,) = pair.server.channels
            channel.write(TAKEN)
            await until(lambda: not pair.client.idle)
            assert "without a request" in caplog.text
            assert (await pair.ask("POST", body=b"abc"))[1].body == b"abc"

    run(test())


OPEN = encode(Open(OWNER, "owned", None, 0, SCOPE, []))
BEGUN = encode(Open(OWNER, "owned", None, 0, SCOPE, [], b"", more_body=True))
WORDS = {
    "signal": TAKEN,
    "garbage": b"garbage!",
    "a body without a request": piece_word(1) + b"x",
    "a request within a request": OPEN + OPEN,
    "a request within a body": BEGUN + piece_word(1) + b"x" + OPEN,
}


@pytest.mark.parametrize("word", WORDS.values(), ids=WORDS)
def test_acceptor_speaks_nonsense(run: Run, caplog: pytest.LogCaptureFixture, word: bytes) -> None:
    """An owner drops a connection on which something else than a request comes, and serves the others."""

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/slow":
            while (await receive())["type"] != "http.disconnect":
                pass
        else:
            await reply()(scope, receive, send)

    async def test() -> None:
        async with Pair(slow) as pair:
            reader, writer = await asyncio.open_unix_connection(pair.path_of(OWNER))
            writer.write(word)
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()
            assert "broke the protocol" in caplog.text
            assert (await pair.ask())[0] == Taken()

    run(test())


def test_next_request_before_the_last_ones_body(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """An owner takes no request on a connection on which the body of the one before it has not ended."""

    async def test() -> None:
        async with Pair(reply()) as pair:
            reader, writer = await asyncio.open_unix_connection(pair.path_of(OWNER))
            writer.write(BEGUN)
            assert await reader.read(1000)
            await until(lambda: not pair.tasks)
            writer.write(OPEN)
            with contextlib.suppress(ConnectionError):
                while await reader.read(1000):
                    pass
            writer.close()
            assert "whose request is not complete" in caplog.text
            assert len(pair.ran) == 1

    run(test())


def test_more_than_one_reply(run: Run) -> None:
    """What an owner says behind a reply is not the next request's: the connection is not used again."""

    async def test() -> None:
        async with Pair(echo) as pair:
            more = asyncio.Event()

            async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.read(1000)
                writer.write(encode(Head(200, [])) + last_word(5) + b"first")
                await more.wait()
                writer.write(encode(Head(200, [], b"second")))
                with contextlib.suppress(ConnectionError):
                    await reader.read()
                writer.close()

            listener = await asyncio.start_unix_server(accepted, pair.path_of(8))
            client = Client()
            client.gate.clear()
            relay = asyncio.ensure_future(pair.relay(client, owner=8))
            await until(lambda: pair.client.busy)
            (link,) = pair.client._peers[8]._links
            await until(lambda: link._unread == 0 and link._arrival is None)
            more.set()
            await until(lambda: link.frames)
            client.gate.set()
            assert await relay == Taken()
            assert client.body == b"first"
            assert pair.client.idle == 0
            listener.close()
            await until(lambda: len(asyncio.all_tasks()) == 1)

    run(test())
