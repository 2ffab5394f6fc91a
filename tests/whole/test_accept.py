"""New connections: spread evenly over the workers, and never left to one that boots, stalls, drains or is dead."""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from whole.harness import Service, eventually

Make = Callable[..., Service]
APP = "whole.apps:gym"
WHOAMI = b"GET /whoami HTTP/1.1\r\nhost: test\r\n\r\n"
BINDS = ["tcp", "unix", "fd"]


@contextmanager
def bound(kind: str) -> Iterator[tuple[str, tuple[int, ...], Callable[[Service], socket.socket]]]:
    """A bind, the descriptors that it needs, and what connects to it."""

    def tcp(service: Service) -> socket.socket:
        return socket.create_connection(("127.0.0.1", service.port), 20)

    def unix(path: str) -> socket.socket:
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(20)
        one.connect(path)
        return one

    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_INET) as given:
        if kind == "tcp":
            yield "127.0.0.1:0", (), tcp
        elif kind == "unix":
            yield f"unix:{folder}/s", (), lambda _: unix(f"{folder}/s")
        else:
            given.bind(("127.0.0.1", 0))
            address = given.getsockname()
            number = given.fileno()
            yield f"fd://{number}", (number,), lambda _: socket.create_connection(address, 20)


def answer(one: socket.socket) -> int:
    """The pid in the reply to WHOAMI."""
    data = b""
    while not data.partition(b"\r\n\r\n")[2]:
        part = one.recv(65536)
        assert part, data
        data += part
    assert data.startswith(b"HTTP/1.1 200"), data
    return int(data.rpartition(b"\r\n\r\n")[2])


def asked(connect: Callable[[], socket.socket], count: int, stack: ExitStack) -> list[socket.socket]:
    """So many new connections, each with its request sent."""
    found = [stack.enter_context(connect()) for _ in range(count)]
    for one in found:
        one.sendall(WHOAMI)
    return found


@pytest.mark.parametrize("kind", BINDS)
def test_a_hundred_connections_at_once_are_spread(service: Make, kind: str) -> None:
    """No worker of four gets twice as many as another, whatever the bind."""
    with bound(kind) as (bind, descriptors, connect), ExitStack() as stack:
        running = service(APP, bind=bind)
        running.descriptors = descriptors
        running.start()
        found = Counter(map(answer, asked(lambda: connect(running), 100, stack)))
        assert len(found) == 4
        assert max(found.values()) <= 2 * min(found.values()), found


def test_no_connection_waits_for_a_worker_that_stalls(service: Make) -> None:
    """One of three is stopped in its tracks: sixty new connections are served by the other two."""
    running = service(APP, workers=3).start()
    stalled = next(iter(running.rows()))
    with ExitStack() as stack:
        os.kill(stalled, signal.SIGSTOP)
        stack.callback(os.kill, stalled, signal.SIGCONT)
        connect = lambda: socket.create_connection(("127.0.0.1", running.port), 20)
        found = Counter(map(answer, asked(connect, 60, stack)))
        assert stalled not in found
        assert len(found) == 2


def test_no_connection_waits_for_a_worker_that_boots(service: Make, tmp_path: Path) -> None:
    """A killed worker's successor hangs in its import: thirty new connections are served by the other one."""
    gate = tmp_path / "open"
    gate.write_text("")
    running = service("whole.gated:app", workers=2, env={"GATE": str(tmp_path)}).start()
    gate.unlink()
    victim, other = running.rows()
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: sorted(seat.state.name for seat in running.seats()) == ["BOOTING", "READY"], "the successor")
    with ExitStack() as stack:
        connect = lambda: socket.create_connection(("127.0.0.1", running.port), 20)
        found = Counter(map(answer, asked(connect, 30, stack)))
        assert set(found) == {other}
    gate.write_text("")
    running.wait_ready()


def test_no_connection_goes_to_a_worker_that_drains(service: Make) -> None:
    """A session keeps it draining: thirty new connections are served by the others."""
    running = service(APP, workers=3).start()
    connection = running.connect()
    _, _, body = connection.ask("POST", "/seed_session", body={})
    owner = json.loads(body)["pid"]
    connection.http.close()
    index = running.rows()[owner].index
    assert running.run("drain", str(index)).returncode == 0
    eventually(lambda: running.rows()[owner].state.name == "DRAINING", "the worker drains")
    with ExitStack() as stack:
        connect = lambda: socket.create_connection(("127.0.0.1", running.port), 20)
        found = Counter(map(answer, asked(connect, 30, stack)))
        assert owner not in found
    assert owner in running.rows()  # it drains still


def test_no_connection_is_lost_with_a_worker_that_dies(service: Make) -> None:
    """All workers stand still while thirty connections queue up; one is killed, the others go on and serve them all."""
    running = service(APP, workers=3).start()
    victim, *others = running.rows()
    with ExitStack() as stack:
        for pid in (victim, *others):
            os.kill(pid, signal.SIGSTOP)
        for pid in others:
            stack.callback(os.kill, pid, signal.SIGCONT)
        connect = lambda: socket.create_connection(("127.0.0.1", running.port), 20)
        queued = asked(connect, 30, stack)
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: victim not in running.rows(), "the death")
        for pid in others:
            os.kill(pid, signal.SIGCONT)
        assert victim not in {answer(one) for one in queued}
    running.wait_ready()


@pytest.mark.parametrize(("kind", "loop"), [("tcp", "uvloop"), ("tcp", "asyncio"), ("fd", "asyncio")])
def test_replies_are_not_delayed(service: Make, kind: str, loop: str) -> None:
    """TCP_NODELAY is set on accepted connections, with either loop, also of an inherited listener."""
    with bound(kind) as (bind, descriptors, connect):
        running = service(APP, bind=bind, workers=1, uvicorn={"loop": loop})
        running.descriptors = descriptors
        running.start()
        with connect(running) as one:
            one.sendall(b"GET /nodelay HTTP/1.1\r\nhost: test\r\n\r\n")
            data = b""
            while not data.partition(b"\r\n\r\n")[2]:
                data += one.recv(65536)
        told: Any = json.loads(data.rpartition(b"\r\n\r\n")[2])
        assert told == 1
