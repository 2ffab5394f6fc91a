"""Connections between workers: each that is sent is served or stays, and no descriptor is left over."""

from __future__ import annotations

import array
import asyncio
import logging
import os
import resource
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest
import uvloop

from shmclaims import RowState, Segment
from supervisor.handover import packet
from supervisor.handover.receiver import Receiver
from supervisor.handover.sender import Sender
from supervisor.relay import unix

ME = 1
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def descriptors() -> int:
    """How many this process has."""
    return len(os.listdir("/proc/self/fd"))


class Worker:
    """What one takes, in a loop of its own."""

    def __init__(self, path: str, loop: asyncio.AbstractEventLoop) -> None:
        self.path = path
        self.loop = loop
        self.taken: list[tuple[socket.socket, bytes]] = []
        self.receiver = loop.run_until_complete(self._make())

    async def _make(self) -> Receiver:
        receiver = Receiver(self.path, ME, lambda connection, first: self.taken.append((connection, first)))
        receiver.start()
        return receiver

    def turn(self, until: Callable[[], object] | None = None) -> None:
        """Let the loop run until there is nothing to do, or something is so."""
        for _ in range(20):
            self.loop.run_until_complete(asyncio.sleep(0))
        end = monotonic() + 10
        while until is not None and not until() and monotonic() < end:
            self.loop.run_until_complete(asyncio.sleep(0.001))

    def close_taken(self) -> None:
        """Close what was taken."""
        for connection, _ in self.taken:
            connection.close()
        self.taken.clear()


@pytest.fixture(params=LOOPS)
def worker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Worker]:
    """One that takes connections; afterwards there are as many descriptors as before."""
    loop = LOOPS[request.param]()
    loop.run_until_complete(asyncio.sleep(0))
    before = descriptors()
    found = Worker(str(tmp_path / "w.fds"), loop)
    yield found
    found.receiver.stop()
    found.close_taken()
    assert not os.path.exists(found.path)
    assert descriptors() == before
    loop.close()


@pytest.fixture
def segment() -> Iterator[Segment]:
    """A table with one worker that is ready."""
    found = Segment.create({}, max_sessions=100)
    assert found.ring.register(0, now=1) == ME
    found.ring.set_state(ME, RowState.READY)
    found.ring.own(ME).beat(monotonic())
    yield found
    found.unlink()
    found.close()


@pytest.fixture
def sender(segment: Segment, worker: Worker) -> Iterator[Sender]:
    """One that sends to it."""
    found = Sender(segment.ring, lambda _: worker.path)
    yield found
    found.close()


@pytest.fixture
def client() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection: the server's end, and the client's."""
    here, there = socket.socketpair()
    with here, there:
        yield here, there


def raw(path: str, data: bytes, count: int, *, sockets: bool = True) -> socket.socket:
    """Send a packet with so many descriptors; who sends it."""
    sock = unix.connect(path, os.getuid(), socket.SOCK_SEQPACKET)
    with open(os.devnull, "rb") as null, socket.socket() as one:
        given = array.array("i", [(one if sockets else null).fileno()] * count)
        sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, given)] if count else [])
    return sock


def test_a_connection_goes_with_its_first_bytes(
    worker: Worker, sender: Sender, client: tuple[socket.socket, socket.socket]
) -> None:
    """The same socket comes out at the other end, non-blocking and closed on exec; what is unread is still in it."""
    here, there = client
    there.sendall(b"next")
    assert sender.send(ME, here.fileno(), b"first")
    here.close()
    worker.turn(lambda: worker.taken)
    [(connection, first)] = worker.taken
    assert (first, connection.recv(10)) == (b"first", b"next")
    assert not connection.getblocking()
    assert not os.get_inheritable(connection.fileno())


def test_many_wait_in_order(worker: Worker, sender: Sender, client: tuple[socket.socket, socket.socket]) -> None:
    """A hundred are sent while the worker does something else; none is refused."""
    for number in range(100):
        assert sender.send(ME, client[0].fileno(), b"%d" % number)
    worker.turn(lambda: len(worker.taken) == 100)
    assert [int(first) for _, first in worker.taken] == list(range(100))


def test_a_full_socket_refuses(worker: Worker, sender: Sender, client: tuple[socket.socket, socket.socket]) -> None:
    """Nothing blocks, and what was not sent has changed nothing; later it goes again."""
    sent = 0
    while sender.send(ME, client[0].fileno(), b"x" * 10_000):
        sent += 1
        assert sent < 10_000
    assert not sender.send(ME, client[0].fileno(), b"")
    worker.turn(lambda: len(worker.taken) == sent)
    assert sender.send(ME, client[0].fileno(), b"")


@pytest.mark.parametrize("what", ["booting", "draining", "dead", "unknown", "stalled", "no socket", "long"])
def test_who_does_not_take_is_not_sent_to(
    worker: Worker, segment: Segment, sender: Sender, client: tuple[socket.socket, socket.socket], what: str
) -> None:
    """The connection stays."""
    owner, first = ME, b""
    match what:
        case "booting":
            segment.ring.set_state(ME, RowState.BOOTING)
        case "draining":
            segment.ring.set_state(ME, RowState.DRAINING)
        case "dead":
            segment.ring.mark_dead(ME, now=2)
        case "unknown":
            owner = 2
        case "stalled":
            segment.ring.own(ME).beat(monotonic() - 60)
        case "no socket":
            os.unlink(worker.path)
        case "long":
            first = b"x" * (packet.MOST_FIRST_BYTES + 1)
    assert not sender.send(owner, client[0].fileno(), first)
    worker.turn()
    assert worker.taken == []


def test_a_stop_takes_what_was_sent(
    worker: Worker, sender: Sender, client: tuple[socket.socket, socket.socket]
) -> None:
    """Whatever was sent before is served, on connections that are there and that are not accepted yet; then refused."""
    assert sender.send(ME, client[0].fileno(), b"1")
    worker.turn(lambda: worker.taken)
    assert sender.send(ME, client[0].fileno(), b"2")
    late = raw(worker.path, packet.pack(ME, b"3"), 1)
    worker.receiver.stop()
    assert sorted(first for _, first in worker.taken) == [b"1", b"2", b"3"]
    assert not sender.send(ME, client[0].fileno(), b"4")
    assert not sender.send(ME, client[0].fileno(), b"5")
    late.close()


BAD = {
    "empty": (b"", 1),
    "short": (b"GSh1", 1),
    "other bytes": (b"nope" + packet.pack(ME, b"")[4:], 1),
    "for another worker": (packet.pack(2, b""), 1),
    "no descriptor": (packet.pack(ME, b""), 0),
    "two": (packet.pack(ME, b""), 2),
    "more than there is room for": (packet.pack(ME, b""), 200),
    "too long": (packet.pack(ME, b"x" * packet.MOST_FIRST_BYTES) + b"x", 1),
    "no socket": (packet.pack(ME, b""), 1),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_cannot_be_used_is_closed(worker: Worker, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """And said; the next one is taken."""
    before = descriptors()
    caplog.set_level(logging.ERROR)
    sock = raw(worker.path, *BAD[kind], sockets=kind != "no socket")
    worker.turn(lambda: caplog.records)
    assert "cannot be used" in caplog.text
    sock.close()
    worker.turn(lambda: descriptors() == before)
    assert worker.taken == []
    assert descriptors() == before


def test_without_descriptors_it_waits(
    worker: Worker, sender: Sender, client: tuple[socket.socket, socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    """A connection for which there is no descriptor now is not dropped by the kernel: it is taken later."""
    assert sender.send(ME, client[0].fileno(), b"1")
    worker.turn(lambda: worker.taken)
    assert sender.send(ME, client[0].fileno(), b"2")

    async def without() -> None:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            for _ in range(20):
                await asyncio.sleep(0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    worker.loop.run_until_complete(without())
    assert len(worker.taken) == 1
    assert "overloaded" in caplog.text
    worker.turn(lambda: len(worker.taken) == 2)
    assert worker.taken[1][1] == b"2"


def test_a_stranger_is_refused(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process of another user is not listened to."""
    monkeypatch.setattr(worker.receiver, "_uid", os.getuid() + 1)
    sock = raw(worker.path, packet.pack(ME, b""), 1)
    worker.turn(lambda: caplog.records)
    sock.close()
    assert "connection refused" in caplog.text
    assert worker.taken == []
