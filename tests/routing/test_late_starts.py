"""A start that comes to be run late is run only if its client is still there: it may have been sent again meanwhile."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from conformance.memory import MemoryFleet
from conformance.script import SEED, TOOL, Ask, Held, HeldByOne, Later, T
from routing.fleets import before_relay, claim, fleet_of, play, runs

from supervisor.routing import flags
from supervisor.routing.listening import CLIENT_LEFT
from supervisor.routing.owner import LATE_SECONDS


async def start_of_a_client_that_leaves(fleet: MemoryFleet, on: int, session: str, left: asyncio.Event) -> None:
    """A seed whose client is gone once `left` is set. No app replies to it."""
    messages = [{"type": "http.request", "body": json.dumps({T: session}).encode(), "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        assert message.get("status", CLIENT_LEFT) == CLIENT_LEFT

    method, path = SEED.split()
    headers = [(b"content-type", b"application/json")]
    scope = fleet.scope(path, headers) | {"type": "http", "method": method, "scheme": "http"}
    await fleet.workers[on].routing.router(scope, receive, send)


@runs
async def test_a_start_whose_client_leaves_while_a_worker_says_no() -> None:
    """Nobody runs it: its client may have tried again, and run now it would undo what that did. It has failed."""
    async with fleet_of(placement="least_sessions") as (fleet, player):
        await claim(fleet.workers[1], "busy-5")
        fleet.workers[0].routing.router.stopping = True
        gone = asyncio.Event()
        orders = []

        async def leave(order: Any) -> None:
            orders.append(order.owner)
            gone.set()

        before_relay(fleet.workers[1], leave)
        await start_of_a_client_that_leaves(fleet, 1, "left", gone)
        assert orders == [fleet.workers[0].incarnation, fleet.workers[2].incarnation]
        await play(player, Held("left", 2), Later("left"))


@runs
async def test_a_start_whose_client_has_left_before_it_is_looked_at() -> None:
    """Nobody runs it, whether the session is here, elsewhere, or new."""
    async with fleet_of(placement="least_sessions") as (fleet, player):
        gone = asyncio.Event()
        gone.set()
        await play(player, Ask(1, SEED, body={T: "there"}, ran=1), Ask(1, TOOL, cookie="=there", ran=1, count=2))
        for on in range(2):
            await start_of_a_client_that_leaves(fleet, on, "there", gone)
            await start_of_a_client_that_leaves(fleet, on, "new", gone)
        await play(player, Ask(0, TOOL, cookie="=there", ran=1, count=3))
        await play(player, HeldByOne("new"), Later("new"), Held("there", 1))


@pytest.mark.parametrize("leaves", [True, False], ids=["and its client leaves", "and its client stays"])
@pytest.mark.parametrize("known", [True, False], ids=["of a known session", "that is placed"])
def test_a_start_that_comes_late_to_its_owner(known: bool, leaves: bool) -> None:
    """It is sent back unrun, and once more to where it belongs if its client is still there."""

    async def race() -> None:
        async with fleet_of(placement="least_sessions") as (fleet, player):
            await claim(fleet.workers[1], "busy-6")
            await claim(fleet.workers[1], "busy-7")
            if known:
                await play(player, Ask(0, SEED, body={T: "late-3"}, ran=0), Ask(0, TOOL, cookie="=late-3", count=2))
            gone = asyncio.Event()
            orders = []

            async def delay(order: Any) -> None:
                orders.append(order.owner)
                if len(orders) == 1:
                    await asyncio.sleep(2 * LATE_SECONDS)
                    if leaves:
                        gone.set()

            before_relay(fleet.workers[1], delay)
            if leaves:
                await start_of_a_client_that_leaves(fleet, 1, "late-3", gone)
                assert orders == [fleet.workers[0].incarnation] * 2
            else:
                await play(player, Ask(1, SEED, body={T: "late-3"}, ran=0))
                assert orders == [fleet.workers[0].incarnation] * 2
            if known:
                await play(player, Ask(0, TOOL, cookie="=late-3", ran=0, count=3 if leaves else 4))
            elif leaves:
                await play(player, Held("late-3", 0), Later("late-3"))

    asyncio.run(race())


def test_the_stamp_of_an_order() -> None:
    """It says when it was given, and changes nothing of what else the bits say."""
    bits = flags.STARTS | flags.TYPED | flags.FINAL
    stamped = flags.stamped(bits, 1234.5678)
    assert flags.age_seconds(stamped, 1234.6) == pytest.approx(0.033)
    assert flags.age_seconds(bits, 1234.6) == 0.0
    assert flags.unpack(stamped, "a") == flags.unpack(bits, "a")
    assert stamped.bit_length() <= 64
