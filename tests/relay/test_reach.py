"""Owners that cannot be reached: no socket, no place in its queue, stale connections, strangers, no descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from relay.conftest import Run
from relay.pair import Client, Pair, echo, nobody_listens, reply, until

from supervisor.relay.codec import encode
from supervisor.relay.frames import Head
from supervisor.relay.outcomes import Gone, Outcome, Overloaded, OwnerLost, Taken, Unreachable


def no_socket(path: str) -> None:
    """Nothing is there."""


@pytest.mark.parametrize("lies_there", [no_socket, nobody_listens])
def test_no_listener(run: Run, lies_there: Any) -> None:
    """Where nobody listens, a live owner is unreachable after the time, and a dead one is gone, also one that dies
    meanwhile.
    """
    live = True

    async def test() -> None:
        nonlocal live
        async with Pair(echo, live=lambda _: live, reach_seconds=0.1) as pair:
            lies_there(pair.path_of(8))
            outcome = await pair.relay(Client(b"x"), owner=8)
            assert type(outcome) is Unreachable
            assert "cannot connect" in outcome.reason
            pair.client._reach_seconds = 60.0
            relay = asyncio.ensure_future(pair.relay(Client(b"x"), owner=8))
            await asyncio.sleep(0)
            live = False
            assert await relay == Gone()
            assert await pair.relay(Client(b"x"), owner=8) == Gone()
            assert pair.client.busy == 0
            assert "peers=0" in repr(pair.client)

    run(test())


def test_a_listener_that_is_late(run: Run) -> None:
    """An owner whose socket appears within the time gets the request."""

    async def test() -> None:
        async with Pair(echo) as pair:
            late = pair.make_server(8)
            relay = asyncio.ensure_future(pair.relay(Client(b"x"), owner=8))
            await asyncio.sleep(0)
            await late.start(pair.path_of(8))
            assert await relay == Taken()
            late.close()

    run(test())


@contextlib.contextmanager
def full_queue(path: str) -> Iterator[tuple[socket.socket, list[socket.socket]]]:
    """A listener whose queue is full, and those that wait in it."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(0)
    waiting: list[socket.socket] = []
    try:
        while True:
            sock = socket.socket(socket.AF_UNIX)
            waiting.append(sock)
            sock.setblocking(False)
            try:
                sock.connect(path)
            except BlockingIOError:
                break
        yield listener, waiting
    finally:
        listener.close()
        for sock in waiting:
            sock.close()


def test_full_queue(run: Run) -> None:
    """A full queue is tried again for the time, and is not taken for a connection (asyncio's connect would)."""

    async def test() -> None:
        async with Pair(echo, reach_seconds=0.1) as pair:
            with full_queue(pair.path_of(8)) as (listener, waiting):
                outcome = await pair.relay(Client(b"x"), owner=8)
                assert type(outcome) is Unreachable
                assert os.strerror(11) in outcome.reason
                pair.client._reach_seconds = 60.0
                relay = asyncio.ensure_future(pair.relay(Client(b"x"), owner=8))
                await asyncio.sleep(0)
                assert not relay.done()
                for _ in range(len(waiting) - 1):
                    listener.accept()[0].close()
                listener.setblocking(False)
                connection, _ = await asyncio.get_running_loop().sock_accept(listener)
                reader, writer = await asyncio.open_unix_connection(sock=connection)
                assert b"owned" in await reader.read(1000)
                writer.write(encode(Head(200, [], b"ok")))
                assert await relay == Taken()
                writer.close()

    run(test())


def test_connections_closed_without_an_answer(run: Run) -> None:
    """An owner that is out of descriptors accepts and closes: nothing has run there, and the request is tried again."""

    async def test() -> None:
        async with Pair(reply(), reach_seconds=60.0) as pair:
            closed = 0
            server = pair.make_server(8)

            def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                nonlocal closed
                closed += 1
                writer.transport.abort()

            listener = await asyncio.start_unix_server(accepted, pair.path_of(8))
            relay = asyncio.ensure_future(pair.relay(Client(b"x"), owner=8))
            await until(lambda: closed >= 3)
            assert not relay.done()
            listener.close()
            await server.start(pair.path_of(8))
            assert await relay == Taken()
            server.close()
            await until(lambda: not server.channels)

    run(test())


def test_stale_connections(run: Run) -> None:
    """Pooled connections that the owner has closed are left alone or tried again, and nothing runs twice."""

    async def test() -> None:
        async with Pair(echo) as pair:
            await asyncio.gather(*(pair.ask() for _ in range(5)))
            assert pair.client.idle == 5
            for channel in list(pair.server.channels):
                channel.abort()
            count = len(pair.ran)
            assert (await pair.ask())[0] == Taken()  # before the acceptor's loop has seen it
            assert len(pair.ran) == count + 1
            await until(lambda: pair.client.idle == 1)
            assert len(pair.server.channels) == 1

    run(test())


def test_owner_that_closes_has_said_that_it_took(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """An owner that ends its connections under a running app owns up: the request is not tried again elsewhere."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "http.request"
        assert (await receive())["type"] == "http.disconnect"

    async def test() -> None:
        async with Pair(app, reach_seconds=0.05) as pair:
            client = Client(b"x")
            relay = asyncio.ensure_future(pair.relay(client))
            await until(lambda: pair.ran)
            pair.server.close()
            assert await relay == Taken(complete=False)
            assert len(pair.ran) == 1
            assert not client.started
            assert "took a request and closed its connection" in caplog.text

    run(test())


def test_no_descriptors(run: Run) -> None:
    """Out of descriptors is said at once; requests on pooled connections go on; afterwards all is as before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def test() -> None:
        async with Pair(echo) as pair:
            await pair.ask()
            lowest = os.dup(0)
            os.close(lowest)
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
            try:
                assert (await pair.ask())[0] == Taken()
                assert await pair.relay(Client(b"x"), owner=8) == Overloaded()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert [outcome for outcome, _ in await asyncio.gather(*(pair.ask() for _ in range(5)))] == [Taken()] * 5

    run(test())


def sleeper() -> subprocess.Popen[bytes]:
    """A process that exits when its stdin is closed."""
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


def test_exit_that_no_row_tells(run: Run) -> None:
    """A process that has exited is dead though its row still says live: the supervisor may be stopped."""

    async def test() -> None:
        process = sleeper()
        assert process.stdin is not None
        async with Pair(echo, pid=process.pid, reach_seconds=60.0) as pair:
            relay = asyncio.ensure_future(pair.relay(Client(b"x"), owner=8))
            await asyncio.sleep(0)
            process.stdin.close()
            assert await relay == Gone()
            process.wait()

    run(test())


OUTCOMES: dict[str, tuple[str, Outcome]] = {"owned": ("owned", OwnerLost(False)), "placed": ("placed", Gone())}


@pytest.mark.parametrize(("mode", "outcome"), OUTCOMES.values(), ids=OUTCOMES)
def test_row_dies_before_the_answer(run: Run, mode: str, outcome: Outcome) -> None:
    """A dead owner that had not answered: a placed request has certainly not run and says so."""
    live = True

    async def test() -> None:
        nonlocal live
        async with Pair(echo, live=lambda _: live, reach_seconds=60.0) as pair:
            connected = asyncio.Event()

            async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                nonlocal live
                await reader.read(10)
                live = False
                writer.transport.abort()
                connected.set()

            listener = await asyncio.start_unix_server(accepted, pair.path_of(8))
            client = Client(b"x")
            assert await pair.relay(client, owner=8, mode=mode) == outcome
            assert connected.is_set()
            assert not client.started
            listener.close()

    run(test())


def test_closed_client_keeps_nothing(run: Run) -> None:
    """After close, a request in flight ends as it would, and its connection is closed then."""
    go = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await go.wait()
        await reply()(scope, receive, send)

    async def test() -> None:
        async with Pair(app) as pair:
            relay = asyncio.ensure_future(pair.ask())
            await until(lambda: pair.ran)
            await pair.client.close()
            go.set()
            assert (await relay)[0] == Taken()
            await until(lambda: not pair.server.channels)

    run(test())
