"""Typed seeds and closes of 64 MiB: routed by the id inside, and held once."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from whole.harness import Connection, Service

MIB = 1024
"""In KiB."""

SIZE_MIB = 64


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Two workers: an owner, and one that relays."""
    running = Service(tmp_path_factory.mktemp("memory"), "whole.memory_app:app", workers=2).start()
    yield running
    assert running.stop() == 0, running.log.read_text()
    assert running.cleanup() == []


def body_of(session: str) -> bytes:
    """A seed with the id at its very end."""
    pad = "x" * (SIZE_MIB * 1024 * MIB)
    return json.dumps({"pad": pad, "resources_session_id": session}).encode()


def peaks(connections: dict[int, Connection]) -> dict[int, tuple[int, int]]:
    """Memory of each worker, now and at most since the last time, in KiB."""
    found = {}
    for pid, connection in connections.items():
        seen = json.loads(connection.ask("GET", "/memory")[2])
        found[pid] = (seen["now"], seen["most"])
    return found


@pytest.mark.parametrize(
    ("route", "most"),
    [
        ("/seed_session", 1.6),  # this app reads piece by piece; a second copy would make it 2 at least
        ("/close_session", 2.6),  # and here whole: Starlette joins the pieces, which costs a copy on any server
    ],
)
def test_a_large_body_is_held_once(service: Service, route: str, most: float) -> None:
    """On the owner, and on a worker that relays it, the router has one copy of it in memory and never two.

    `most` is the worker's peak as a multiple of the body's size.
    """
    connections = service.connections()
    session = f"large{route}"
    body = body_of(session)
    first = next(iter(connections))
    # Whoever is asked first may place the session elsewhere; from then on one owns it and the other relays.
    reply = json.loads(connections[first].ask("POST", route, body=body)[2])
    owner = reply["pid"]
    assert reply["bytes"] == len(body)
    for pid in (owner, next(pid for pid in connections if pid != owner)):
        before = peaks(connections)
        reply = json.loads(connections[pid].ask("POST", route, body=body)[2])
        assert (reply["pid"], reply["bytes"]) == (owner, len(body))
        after = peaks(connections)
        for seen in connections:
            grown = (after[seen][1] - before[seen][0]) / MIB
            role = ("owner" if seen == owner else "relay") + (", accepted it" if seen == pid else "")
            print(f"{route}: {role}: +{grown:.0f} MiB at most for a body of {SIZE_MIB} MiB")
            assert grown < most * SIZE_MIB
