"""The stress scenarios: a small version of each by default, the full size in the soak."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from rich.console import Console
from stress.run import Result, run, run_all
from stress.scenarios import SCENARIOS
from stress.services import Services
from stress.show import AGENTS, WINDOW_SECONDS, WORKERS, raise_descriptors, table_of

pytest.importorskip("mcp")

# A few attempts of each at once: where much else runs on the machine, none is to wait for longer than the window.
# The worker that is killed must have some sessions.
SMALL = [replace(one, together=40 if one.kills else 4) for one in SCENARIOS if one.small]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Result]]:
    """Small ones on three workers and two agents, all at once; after them a worker is killed in the middle of one."""
    services = Services(tmp_path_factory.mktemp("stress"), window_seconds=3, workers=3, agents=2)
    found: list[Result] = []
    try:
        for kills in (False, True):
            chosen = [(scenario, scenario.small) for scenario in SMALL if scenario.kills is kills]
            found += asyncio.run(run(chosen, services))
    finally:
        left = services.stop()
    yield {result.scenario.name: result for result in found}
    assert left == []


@pytest.mark.parametrize("name", [scenario.name for scenario in SMALL])
def test_small(name: str, results: dict[str, Result]) -> None:
    """Everything is correct, no session is on two workers, and nothing is left."""
    assert results[name].good, results[name]


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_full_size(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The whole table, at 8 workers and 4 agents."""
    raise_descriptors()
    services = Services(tmp_path_factory.mktemp("full"), window_seconds=WINDOW_SECONDS, workers=WORKERS, agents=AGENTS)
    try:
        chosen = [(scenario, scenario.full) for scenario in SCENARIOS]
        results = asyncio.run(run_all(chosen, services, print))
    finally:
        left = services.stop()
    Console(width=160).print(table_of(results))
    assert all(result.good for result in results), results
    assert left == []
