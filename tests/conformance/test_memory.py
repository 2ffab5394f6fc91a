"""The session rule in memory: several routers on one real table."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from conformance.cases import CASES, WINDOW, Case
from conformance.memory import MemoryFleet
from conformance.player import Player


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_case(case: Case) -> None:
    """Each line of the contract holds, whichever worker a request lands on."""

    async def play() -> None:
        affinity = {"session_close_retry_window_seconds": WINDOW, **case.affinity}
        with tempfile.TemporaryDirectory() as folder:
            async with MemoryFleet(
                case.kind, Path(folder), workers=case.workers, affinity=affinity, placement="accepting"
            ) as fleet:
                await Player(fleet, case).play()

    asyncio.run(play())
