"""Streams that are open at the end: their apps are told, have a moment, and then the lifespan shuts down in order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import websockets
from whole.harness import Service, eventually

Make = Callable[..., Service]


def started(service: Make, tmp_path: Path, workers: int = 2, **timeouts: float) -> tuple[Service, Path]:
    """The service, and the folder for what its apps note."""
    notes = tmp_path / "notes"
    notes.mkdir()
    options = {"workers": workers, "env": {"NOTES": str(notes)}, "timeouts": timeouts}
    return service("whole.streaming:app", **options).start(), notes


def noted(folder: Path) -> list[str]:
    """What was noted, without the pids."""
    return sorted(path.name.partition(".")[0] for path in folder.iterdir())


def open_stream(running: Service, path: str, cookie: str = "") -> socket.socket:
    """A stream whose first chunk has come."""
    client = socket.create_connection(("127.0.0.1", running.port), 20)
    client.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\ncookie: {cookie}\r\n\r\n".encode())
    data = b""
    while b"first" not in data:
        data += client.recv(65536)
    return client


@pytest.mark.parametrize("path", ["/events", "/deaf"])
def test_open_streams_hear_of_a_stop(service: Make, tmp_path: Path, path: str) -> None:
    """http.disconnect, here and behind a relay; who does not end then is cancelled; lifespans end; nobody is killed."""
    running, notes = started(service, tmp_path, graceful_seconds=5)
    connections = running.connections()
    _, headers, body = next(iter(connections.values())).ask("POST", "/seed_session", body={"n": 1})
    cookie, owner = headers["set-cookie"].split(";")[0], json.loads(body)["pid"]
    for connection in connections.values():
        connection.http.close()
    relayed = sum(row.relayed_out for row in running.rows().values())
    streams: list[socket.socket] = []
    while sum(row.relayed_out for row in running.rows().values()) == relayed or len(streams) < 2:
        streams.append(open_stream(running, path, cookie))
    assert running.rows()[owner].relayed_in > 0
    assert running.stop() == 0
    for stream in streams:
        stream.close()
    expected = {"told", "lifespan", "cancelled"} if path == "/deaf" else {"told", "lifespan"}
    assert set(noted(notes)) == expected
    assert noted(notes).count("lifespan") == 2
    assert "killing" not in running.log.read_text()


def test_open_websockets_hear_of_a_stop(service: Make, tmp_path: Path) -> None:
    """Close code 1012 on both ends, at once."""
    running, notes = started(service, tmp_path, graceful_seconds=60)

    async def connect() -> int | None:
        async with websockets.connect(f"ws://127.0.0.1:{running.port}/endless") as client:
            running.signal(signal.SIGTERM)
            await client.wait_closed()
            return client.close_code

    assert asyncio.run(connect()) == 1012
    assert running.wait() == 0
    assert "websocket-1012" in noted(notes)


def test_a_stream_of_a_drained_worker_ends_with_its_time(service: Make, tmp_path: Path) -> None:
    """It holds the drain up, for drain_seconds at most; then it is told. Others do not notice."""
    running, notes = started(service, tmp_path, 1, drain_seconds=1, graceful_seconds=5)
    (old,) = running.rows()
    with open_stream(running, "/events"):
        assert running.run("drain", "0").returncode == 0
        assert old in running.rows()
        eventually(lambda: old not in running.rows(), "the end of its time")
    assert noted(notes) == ["lifespan", "told"]
    assert "not drained within drain_seconds" in running.log.read_text()
    assert "killing" not in running.log.read_text()
    assert running.stop() == 0


def test_a_worker_that_is_told_to_stop_tells_its_streams(service: Make, tmp_path: Path) -> None:
    """SIGTERM to one worker alone: what runs has graceful_seconds, the stream hears just before."""
    running, notes = started(service, tmp_path, 1, graceful_seconds=3)
    (old,) = running.rows()
    with open_stream(running, "/events"):
        os.kill(old, signal.SIGTERM)
        eventually(lambda: old not in running.rows(), "its end")
    assert {"told", "lifespan"} <= set(noted(notes))
    assert "killing" not in running.log.read_text()
    running.wait_ready()
    assert running.stop() == 0
