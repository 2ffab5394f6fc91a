"""A stop while clients connect: whoever was let in is served, and nobody keeps the service from ending."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from whole.harness import Service, eventually


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Makes one service; after the test nothing of it may be left."""
    made: list[Service] = []

    def make() -> Service:
        made.append(Service(tmp_path, "conformance.app:resources_factory", factory=True, workers=1).start())
        return made[-1]

    yield make
    for one in made:
        print(one.log.read_text())
        assert one.cleanup() == []


def accepted(service: Service, count: int) -> None:
    """Wait until the worker has so many connections."""
    eventually(lambda: [row.connections for row in service.rows().values()] == [count], f"{count} connections")


def test_a_client_that_has_just_connected_is_served(service: Callable[..., Service]) -> None:
    """Its request was on its way when the stop came: it gets its reply, then the connection's end, and no reset."""
    one = service()
    with socket.create_connection(("127.0.0.1", one.port), 20) as client:
        accepted(one, 1)
        one.signal(signal.SIGTERM)
        eventually(lambda: "stopping, within" in one.log.read_text(), "the stop")
        client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        data = b""
        while part := client.recv(65536):
            data += part
        assert data.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in data.lower()
    assert one.wait() == 0


def test_a_client_that_says_nothing_keeps_nobody(service: Callable[..., Service]) -> None:
    """New connections without a request, and half of a request, are closed well before graceful_seconds."""
    one = service()
    with (
        socket.create_connection(("127.0.0.1", one.port), 20) as silent,
        socket.create_connection(("127.0.0.1", one.port), 20) as slow,
    ):
        slow.sendall(b"GET / HTTP/1.1\r\nhost:")
        accepted(one, 2)
        one.signal(signal.SIGTERM)
        assert one.wait(15) == 0
        assert silent.recv(1) == b""
        assert slow.recv(1) == b""
    assert "killing" not in one.log.read_text()
