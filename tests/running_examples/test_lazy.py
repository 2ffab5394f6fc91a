"""Sessions that come into being with their first tool call, and say so themselves."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator

import pytest
from running_examples.clients import Client
from running_examples.services import example
from whole.harness import Service, eventually


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The example, running, with short times."""
    times = {"session_close_retry_window_seconds": 0.4, "idle_seconds": 0.4, "open_idle_seconds": 5}
    running = example(tmp_path_factory.mktemp("lazy"), "lazy", affinity=times).start()
    yield running
    assert running.stop() == 0, running.log.read_text()
    assert running.cleanup() == []


def claimed(service: Service, client: Client) -> bool:
    """Whether somebody holds the client's session."""
    assert client.cookie is not None
    session = json.loads(b64decode(client.cookie.split("=", 1)[1].split(".")[0]))["session_id"]
    with service.segment() as segment:
        return segment.table.lookup(session.encode()) is not None


def test_the_first_note_begins_a_session(service: Service) -> None:
    """Twelve sessions without a seed: each finds its notes, from every worker."""
    for number in range(12):
        client = Client()
        for count in range(1, 4):
            text = {"text": f"{number}-{count}"}
            assert client.post(service.connect(), "/add_note", text) == (200, {"notes": count})
        notes = client.post(service.connect(), "/list_notes")[1]["notes"]
        assert notes == [f"{number}-{count}" for count in range(1, 4)]


def test_a_session_with_notes_is_held_open(service: Service) -> None:
    """When one that is held only by its route is long gone, it is still there; then `open_idle_seconds` ends it."""
    held, client = Client(), Client()
    held.post(service.connect(), "/add_note", {"text": "a"})
    client.post(service.connect(), "/discard")
    eventually(lambda: not claimed(service, client), "a discarded session's claim to end with the window")
    assert claimed(service, held)
    eventually(lambda: not claimed(service, held), "an idle session's claim to end")
    assert held.post(service.connect(), "/list_notes") == (200, {"notes": []})


def test_a_session_without_notes_is_let_go_at_once(service: Service) -> None:
    """There is nothing to come back to."""
    client = Client()
    assert client.post(service.connect(), "/list_notes") == (200, {"notes": []})
    eventually(lambda: not claimed(service, client), "the claim to be released")
