"""HTTP/2 on a running service: its connections at a drain and a stop, its access lines. What it carries: tests/wire."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from whole.harness import Service, eventually

pytest.importorskip("zttp")
h2 = pytest.importorskip("h2.connection")
events = pytest.importorskip("h2.events")

Make = Callable[..., Service]


class Client:
    """One connection of HTTP/2."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), 20)
        self._h2 = h2.H2Connection()
        self._h2.initiate_connection()
        self.goodbye = False
        self.data: dict[int, bytes] = {}
        self.ended: set[int] = set()

    def ask(self, path: str) -> int:
        """Open a stream; returns its number."""
        stream: int = self._h2.get_next_available_stream_id()
        head = [(":method", "GET"), (":path", path), (":scheme", "http"), (":authority", "h")]
        self._h2.send_headers(stream, head, end_stream=True)
        self._sock.sendall(self._h2.data_to_send())
        return stream

    def until(self, true: Callable[[], bool]) -> None:
        """Read on until it is true, or the server has closed."""
        while not true():
            data = self._sock.recv(65536)
            if not data:
                return
            for event in self._h2.receive_data(data):
                if isinstance(event, events.DataReceived):
                    self.data[event.stream_id] = self.data.get(event.stream_id, b"") + event.data
                elif isinstance(event, events.StreamEnded | events.StreamReset):
                    self.ended.add(event.stream_id)
                elif isinstance(event, events.ConnectionTerminated):
                    self.goodbye = True
            self._sock.sendall(self._h2.data_to_send())

    def whole(self, path: str) -> bytes:
        """A request's whole reply."""
        stream = self.ask(path)
        self.until(lambda: stream in self.ended)
        return self.data[stream]

    def close(self) -> None:
        """Leave."""
        self._sock.close()


def started(service: Make, tmp_path: Path, **options: object) -> tuple[Service, Path]:
    """The service, and the folder for what its apps note."""
    notes = tmp_path / "notes"
    notes.mkdir()
    uvicorn = {"http": "zttp", "http2": True, "timeout_keep_alive": 60}
    return service("whole.streaming:app", env={"NOTES": str(notes)}, uvicorn=uvicorn, **options).start(), notes


def test_a_drain_says_goodbye(service: Make, tmp_path: Path) -> None:
    """An idle connection does not hold it up for the keep-alive time-out; one with a stream ends after that."""
    running, notes = started(service, tmp_path, workers=1, timeouts={"drain_seconds": 60})
    (old,) = running.rows()
    idle, busy = Client(running.port), Client(running.port)
    assert idle.whole("/whoami") == b"%d" % old
    slow = busy.ask("/slow?seconds=1")
    assert running.run("drain", "0").returncode == 0
    idle.until(lambda: idle.goodbye)
    assert idle.goodbye
    busy.until(lambda: slow in busy.ended)
    assert b'"pid"' in busy.data[slow]
    busy.until(lambda: busy.goodbye)
    assert busy.goodbye
    eventually(lambda: old not in running.rows(), "the old worker's end", 20)
    assert "not drained" not in running.log.read_text()
    idle.close()
    busy.close()
    assert running.stop() == 0


def test_open_streams_hear_of_a_stop(service: Make, tmp_path: Path) -> None:
    """Their apps are told, and nobody is killed; each request has one access line."""
    running, notes = started(service, tmp_path, workers=2, timeouts={"graceful_seconds": 10}, log={"format": "json"})
    client = Client(running.port)
    stream = client.ask("/events")
    client.until(lambda: client.data.get(stream) == b"first")
    assert client.whole("/whoami?once")
    assert running.stop() == 0
    client.close()
    assert sorted(path.name.partition(".")[0] for path in notes.iterdir()) == ["lifespan", "lifespan", "told"]
    log = running.log.read_text()
    assert "killing" not in log
    assert len([line for line in log.splitlines() if "/whoami?once" in line]) == 1
