"""Episodes by the hundred: every one ends right, and a worker's death costs its own sessions and no others."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from whole.harness import REPO, Service, eventually

from supervisor.commands import episodes

COUNTER = {"chdir": str(REPO)}
APP = "examples.counter:app"


def played(service: Service, count: int, pooled: int | None) -> episodes.Tally:
    """Play episodes against the service."""
    return asyncio.run(episodes.play(service.url, count, pooled=pooled, steps=2, look=True))


@pytest.mark.parametrize("pooled", [None, 8], ids=["a connection per request", "pooled connections"])
def test_every_episode_scores(service: Callable[..., Service], pooled: int | None) -> None:
    """Sessions mixed over few connections, and a new connection for each request: the same."""
    running = service(APP, **COUNTER).start()
    tally = played(running, 100, pooled)
    assert (tally.right, tally.total) == (100, 100), tally
    assert sum(row.relayed_out for row in running.rows().values()) > 0
    assert running.stop() == 0


@pytest.mark.soak
@pytest.mark.parametrize("workers", [4, 8])
@pytest.mark.parametrize("pooled", [None, 32], ids=["a connection per request", "pooled connections"])
def test_every_episode_scores_five_times(service: Callable[..., Service], workers: int, pooled: int | None) -> None:
    """200 concurrent episodes, five times over."""
    running = service(APP, workers=workers, **COUNTER).start()
    scores = [played(running, 200, pooled).right for _ in range(5)]
    relayed = sum(row.relayed_out for row in running.rows().values())
    print(f"{workers} workers, {'new connections' if pooled is None else 'pooled'}: {scores}, {relayed} relayed")
    assert scores == [200] * 5
    assert running.stop() == 0


def session_of(cookies: Mapping[str, Any]) -> str:
    """The session id in an episode's cookies."""
    (cookie,) = cookies.values()
    return str(json.loads(b64decode(cookie.value.split(".")[0]))["session_id"])


def test_a_death_in_the_middle_of_200_episodes(service: Callable[..., Service]) -> None:
    """The dead worker's sessions get 410 on every later request, from every worker; all others end right."""
    running = service(APP, **COUNTER).start()
    asyncio.run(die_while_they_play(running))
    assert running.stop() == 0


async def die_while_they_play(running: Service) -> None:
    """Seed 200 sessions, kill a worker while they go on, and look at each of them."""
    victim = next(iter(running.rows()))
    incarnation = running.rows()[victim].incarnation
    async with episodes.client(pooled=None) as client:
        players = [episodes.Episode(client, running.url) for _ in range(200)]
        await asyncio.gather(*(player.seed(number) for number, player in enumerate(players)))
        with running.segment() as segment:
            claims = [segment.table.lookup(session_of(player.cookies).encode()) for player in players]
        lost = [claim is not None and claim.incarnation == incarnation for claim in claims]
        assert 20 <= sum(lost) <= 100
        killed = asyncio.Event()

        async def go_on(number: int) -> list[str]:
            player, seen = players[number], []
            for step in range(10):
                if step == 3:
                    await killed.wait()
                try:
                    await player.increment(1)
                    seen.append("ok")
                except episodes.Refused as refused:
                    seen.append(f"{refused.status} {refused.kind}")
                except Exception as error:
                    seen.append(type(error).__name__)
            return seen

        async def new_sessions() -> int:
            started = 0
            for number in range(40):
                player = episodes.Episode(client, running.url)
                try:
                    await player.seed(number)
                    await player.increment(1)
                    started += 1
                except (OSError, episodes.Refused, episodes_errors()):
                    pass
            return started

        async def kill() -> None:
            await asyncio.sleep(0)
            os.kill(victim, signal.SIGKILL)
            await asyncio.to_thread(eventually, lambda: victim not in running.rows(), "the death to be seen")
            killed.set()

        results, started, _ = await asyncio.gather(
            asyncio.gather(*(go_on(number) for number in range(200))), new_sessions(), kill()
        )
        for number, seen in enumerate(results):
            if lost[number]:
                assert set(seen[3:]) == {"410 session_gone"}, (number, seen)
        assert started >= 35
        await asyncio.to_thread(running.wait_ready)
        for number, player in enumerate(players):
            if lost[number]:
                with pytest.raises(episodes.Refused, match="410"):
                    await player.value()
            else:
                # A connection that the dead worker had accepted broke with it, before or after its increment.
                sure = results[number].count("ok")
                broken = len(results[number]) - sure
                assert not any(result.startswith("4") for result in results[number]), results[number]
                assert number + sure <= await player.value() <= number + sure + broken
    shown = json.loads((await asyncio.to_thread(running.run, "claims", "--json")).stdout)
    assert sum(claim["state"] == "gone" for claim in shown) >= sum(lost)
    assert {claim["incarnation"] for claim in shown if claim["state"] == "gone"} == {incarnation}


def episodes_errors() -> type[Exception]:
    """What a broken connection raises in the client."""
    import aiohttp

    return aiohttp.ClientError
