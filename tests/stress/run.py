"""Runs scenarios against the services, and measures what the table shows."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from stress.client import Http, Wrong
from stress.scenarios import Scenario
from stress.services import Services
from whole.harness import eventually


@dataclass
class Result:
    """One line of the table.

    doubled       sessions that were created on two workers
    left          sessions that some worker still holds
    claims        live claims one second after the window
    gone          sessions whose requests were answered with 410
    lost          sessions of the killed worker, where one was
    reasons       what went wrong, how often
    broken        requests that were sent again after a broken connection
    """

    scenario: Scenario
    number: int
    right: int = 0
    doubled: int = 0
    left: int = 0
    claims: int = 0
    gone: int = 0
    lost: int = 0
    requests: int = 0
    broken: int = 0
    seconds: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def good(self) -> bool:
        """Everything is as it should be. Sessions get 410 where a worker was killed, and only its own."""
        clean = self.right == self.number and not (self.doubled or self.left or self.claims)
        return clean and (0 < self.gone <= self.lost if self.scenario.kills else not self.gone)


async def attempts(scenario: Scenario, number: int, http: Http, result: Result, third: asyncio.Event) -> None:
    """All attempts at once; `third` is set when a third of them are through."""
    turns = asyncio.Semaphore(scenario.together or number)

    async def one(n: int) -> None:
        try:
            async with turns:
                await scenario.attempt(http, n)
        except Wrong as wrong:
            result.reasons[str(wrong)] += 1
        except Exception as error:
            result.reasons[f"{type(error).__name__}: {error}"[:100]] += 1
        else:
            result.right += 1
        if result.right >= number / 3:
            third.set()

    await asyncio.gather(*(one(n) for n in range(number)))


async def kill_one(services: Services, result: Result, third: asyncio.Event) -> None:
    """Kill a worker once a third of the attempts are through."""
    await third.wait()
    victim = next(iter(services.resources.rows()))
    os.kill(victim, signal.SIGKILL)
    await asyncio.to_thread(eventually, lambda: victim not in services.resources.rows(), "the death to be seen")
    result.lost = services.gone_claims()


async def play(scenario: Scenario, number: int, services: Services) -> Result:
    """One scenario's attempts."""
    result = Result(scenario, number)
    http = Http(services.by_name[scenario.through].url, at_once=scenario.at_once, pooled=scenario.pooled)
    third = asyncio.Event()
    began = time.monotonic()
    try:
        killing = asyncio.ensure_future(kill_one(services, result, third)) if scenario.kills else None
        await attempts(scenario, number, http, result, third)
        if killing is not None:
            await killing
    finally:
        await http.close()
    result.seconds = time.monotonic() - began
    result.requests, result.broken, result.gone = http.requests, http.broken, len(http.gone)
    return result


async def run(scenarios: list[tuple[Scenario, int]], services: Services) -> list[Result]:
    """Scenarios at once, from an empty table to one that is empty again; what is left counts for each of them."""
    services.forget_created()
    results = await asyncio.gather(*(play(scenario, number, services) for scenario, number in scenarios))
    ended = time.monotonic()
    if any(scenario.kills for scenario, _ in scenarios):
        await asyncio.to_thread(services.resources.wait_ready)
    await asyncio.sleep(max(0.0, ended + services.window_seconds + 1 - time.monotonic()))
    claims = services.live_claims()
    left = await asyncio.to_thread(services.sessions_left)
    doubled = services.created_twice()
    for result in results:
        result.claims, result.left, result.doubled = claims, left, doubled
    return results


async def run_all(
    scenarios: list[tuple[Scenario, int]], services: Services, note: Callable[[Result], None]
) -> list[Result]:
    """One after the other."""
    results = []
    for pair in scenarios:
        results += await run([pair], services)
        note(results[-1])
    return results
