"""The session rule in memory: several routers on one real table."""

from __future__ import annotations

import asyncio

import pytest
from conformance.cases import CASES
from conformance.memory import play_all
from conformance.script import Case


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> dict[str, Exception | None]:
    """What became of the chosen cases: they are played at once, since most of their time is waiting for windows."""
    chosen = {item.name for item in request.session.items if item.path == request.path}
    found: dict[str, Exception | None] = {}
    cases = [case for case in CASES if f"test_case[{case.name}]" in chosen]
    asyncio.run(play_all(cases, lambda case, error: found.update({case.name: error})))
    return found


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_case(case: Case, results: dict[str, Exception | None]) -> None:
    """Each line of the contract holds, whichever worker a request lands on."""
    error = results[case.name]
    if error is not None:
        raise error
