"""The agent server in front of the typed counter: two services, each with its own sessions."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from running_examples.clients import Client
from running_examples.services import example
from whole.harness import Service, eventually

Pair = tuple[Service, Service]


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both, running."""
    folder = tmp_path_factory.mktemp("agent")
    window = {"session_close_retry_window_seconds": 0.5}
    typed = example(folder / "typed", "agent", server="typed", affinity=window).start()
    agent = example(folder / "agent", "agent", affinity=window, env={"RESOURCES_URL": typed.url}).start()
    yield agent, typed
    for service in (agent, typed):
        assert service.stop() == 0, service.log.read_text()
        assert service.cleanup() == []


def played(agent: Service, number: int) -> dict[str, object]:
    """One agent session: a few turns by hand, the rest by /run, and the close; every request on a new connection."""
    session, client = str(uuid4()), Client()
    seed = {"agent_session_id": session, "start": number, "target": number + 10}
    assert client.post(agent.connect(), "/v1/agent_sessions", seed) == (200, {})
    _, turn = client.post(agent.connect(), "/v1/responses")
    assert turn == {"call": {"name": "increment_counter", "arguments": {"count": 3}}}
    status, result = client.post(agent.connect(), "/run")
    assert status == 200, result
    close = {"agent_session_id": session}
    assert Client().post(agent.connect(), "/v1/agent_sessions/close", close) == (200, {"turns": 4})
    return dict(result)


def test_every_agent_session_scores(services: Pair) -> None:
    """Forty at once, through two relays each: all rewards are 1, and no claim is left on either server."""
    agent, typed = services
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda number: played(agent, number), range(40)))
    assert results == [{"turns": 4, "reward": 1.0}] * 40
    for service in services:
        assert sum(row.relayed_in for row in service.rows().values()) > 0

    def claims() -> int:
        total = 0
        for service in services:
            with service.segment() as segment:
                total += segment.table.count()[0]
        return total

    eventually(lambda: claims() == 0, "every claim to end")


def test_an_agent_session_that_is_no_more(services: Pair) -> None:
    """Without a session there is nothing to run."""
    agent, _ = services
    status, reply = Client().post(agent.connect(), "/run")
    assert (status, reply) == (404, {"detail": "no agent session: 'agent_session_id'"})
