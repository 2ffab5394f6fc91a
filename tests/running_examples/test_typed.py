"""The server with typed seeds and closes: one id from seed to close, receipts, and late seeds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import uuid4

import pytest
from running_examples.clients import Client
from running_examples.services import example
from whole.harness import Service, eventually


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The example, running, with a short window."""
    window = {"session_close_retry_window_seconds": 0.5}
    running = example(tmp_path_factory.mktemp("typed"), "typed", affinity=window).start()
    yield running
    assert running.stop() == 0, running.log.read_text()
    assert running.cleanup() == []


def ask(service: Service, path: str, session: str, **more: int) -> tuple[int, dict[str, object]]:
    """A request that names the session in its body, without a cookie, on a new connection."""
    status, _, content = service.connect().ask("POST", path, body={"resources_session_id": session, **more})
    return status, json.loads(content)


def test_one_id_from_seed_to_close(service: Service) -> None:
    """Twelve episodes: the seed names the session, the cookie carries it, the close names it again."""
    for number in range(12):
        session, client = str(uuid4()), Client()
        body = {"resources_session_id": session, "initial_count": number}
        assert client.post(service.connect(), "/seed_session", body) == (200, {})
        assert client.post(service.connect(), "/increment_counter", {"count": 2}) == (200, {"success": True})
        assert ask(service, "/close_session", session) == (200, {"closed": session, "final_count": number + 2})


def test_a_repeated_close_gets_the_same_receipt(service: Service) -> None:
    """From whichever worker it is asked for."""
    session = str(uuid4())
    assert ask(service, "/seed_session", session, initial_count=7)[0] == 200
    receipts = [ask(service, "/close_session", session) for _ in range(6)]
    assert receipts == [(200, {"closed": session, "final_count": 7})] * 6


def test_a_late_seed_is_the_apps_to_refuse_and_the_record_goes_with_the_claim(service: Service) -> None:
    """While the claim lives the app says no; when it is gone the id is free again, on any worker."""
    session = str(uuid4())
    assert ask(service, "/close_session", session) == (200, {"closed": session, "final_count": None})
    status, reply = ask(service, "/seed_session", session, initial_count=1)
    assert (status, reply["detail"]) == (409, "this session is closed")

    def gone() -> bool:
        with service.segment() as segment:
            return segment.table.lookup(session.encode()) is None

    eventually(gone, "the closed session's claim to end")
    for number in (1, 2):
        assert ask(service, "/seed_session", session, initial_count=number) == (200, {})
    assert ask(service, "/close_session", session) == (200, {"closed": session, "final_count": 2})
