"""Both loops for every test of the relay, and nothing left behind."""

from __future__ import annotations

import asyncio
import glob
import os
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Runs a coroutine on either loop. Afterwards no task, descriptor or socket of it is left."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:  # a first loop opens descriptors for good
        runner.run(asyncio.sleep(0))
    folders = set(glob.glob(f"/tmp/gsv-relay-{os.getpid()}-*"))
    descriptors = len(os.listdir("/proc/self/fd"))
    with asyncio.Runner(loop_factory=factory) as runner:

        def run(test: Coroutine[Any, Any, Any]) -> Any:
            async def watched() -> Any:
                async with asyncio.timeout(60):
                    result = await test
                for _ in range(20):
                    await asyncio.sleep(0)
                left = asyncio.all_tasks() - {asyncio.current_task()}
                assert not left, left
                return result

            return runner.run(watched())

        yield run
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert set(glob.glob(f"/tmp/gsv-relay-{os.getpid()}-*")) <= folders
