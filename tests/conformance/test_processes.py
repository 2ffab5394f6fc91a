"""The session rule with real processes: the same table of cases, against running services."""

from __future__ import annotations

import asyncio

import pytest
from conformance.cases import CASES
from conformance.processes import ProcessFleets
from conformance.script import Case


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Exception | None]:
    """What became of the chosen cases: they are played at once, since most of their time is waiting for windows."""
    chosen = {item.name for item in request.session.items if item.path == request.path}
    found: dict[str, Exception | None] = {}

    async def play() -> list[str]:
        fleets = ProcessFleets(tmp_path_factory.mktemp("conformance"))
        try:
            cases = [case for case in CASES if f"test_case[{case.name}]" in chosen]
            await fleets.play(cases, lambda case, error: found.update({case.name: error}))
        finally:
            left = fleets.stop()
        return left

    assert asyncio.run(play()) == []
    return found


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_case(case: Case, results: dict[str, Exception | None]) -> None:
    """Each line of the contract holds on a running service."""
    error = results[case.name]
    if error is not None:
        raise error
