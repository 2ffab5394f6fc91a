"""What one router knows gets old before it acts: whatever happens in between, one worker runs a session, or nobody."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conformance.script import AGENTS, CLOSE, NOBODY, SEED, TOOL, A, Ask, Held, HeldByOne, Later, Mark, NothingNew, T
from routing.fleets import Gate, after_find, before_relay, claim, end, fleet_of, play, runs

SOCKET = "WEBSOCKET /socket"
STATUS = {TOOL: 200, SEED: 200, SOCKET: 101}


@pytest.mark.parametrize("route", [TOOL, SEED], ids=["a cookie", "typed seeds"])
def test_workers_that_claim_one_id(route: str) -> None:
    """All three have seen it unclaimed before any of them claims it: one runs them all."""

    async def race() -> None:
        async with fleet_of() as (fleet, player):
            gate = Gate(at=3)
            for worker in fleet.workers:
                after_find(worker, gate)
            body, cookie = ({T: "one"}, None) if route == SEED else (None, "=one")
            asks = [player.ask(Ask(on, route, cookie=cookie, body=body, same="one")) for on in range(3)]
            going = asyncio.gather(*asks)
            await gate.reached()
            gate.open()
            assert len(set(await going)) == 1
            await play(player, HeldByOne("one"), Ask(1, TOOL, cookie="=one", count=4))

    asyncio.run(race())


@pytest.mark.parametrize("first", ["seed", "close"])
def test_a_seed_and_a_close_of_one_id(first: str) -> None:
    """Both have seen it unclaimed. The close that comes second ends the session; the seed that does is refused."""

    async def race() -> None:
        async with fleet_of() as (fleet, player):
            gates = [Gate(), Gate()]
            for worker, gate in zip(fleet.workers, gates, strict=False):
                after_find(worker, gate)
            won = first == "seed"
            seed = Ask(0, SEED, body={T: "both"}, ran=0 if won else NOBODY, status=200 if won else 409)
            close = Ask(1, CLOSE, body={T: "both"}, ran=0 if won else 1)
            tasks = [asyncio.ensure_future(player.ask(ask)) for ask in (seed, close)]
            await gates[0].reached()
            await gates[1].reached()
            for number in (0, 1) if won else (1, 0):
                gates[number].open()
                await tasks[number]
            await play(player, Held("both", 0 if won else 1), Later("both"))

    asyncio.run(race())


@runs
async def test_a_close_while_its_seed_runs() -> None:
    """The close has its reply first and the seed succeeds after it: the session is over all the same."""
    async with fleet_of() as (_, player):
        seed = asyncio.ensure_future(player.ask(Ask(0, SEED, body={T: "late", "hold": True}, ran=0)))
        await play(player, Held("late", 0), Ask(1, CLOSE, body={T: "late"}, ran=0), Ask(0, "POST /release"))
        await seed
        await play(player, Ask(1, SEED, body={T: "late"}, ran=NOBODY, status=409), Later("late"))


@pytest.mark.parametrize("route", [TOOL, SOCKET], ids=["a call", "a websocket"])
def test_a_claim_that_ends_while_a_request_for_it_is_on_its_way(route: str) -> None:
    """The owner claims it again and runs the request; nobody else does."""

    async def race() -> None:
        async with fleet_of() as (fleet, player):
            await play(player, Ask(0, TOOL, cookie="=gone", ran=0, count=1))
            gate = Gate()
            after_find(fleet.workers[1], gate)
            ask = Ask(1, route, cookie="=gone", ran=0, count=2, status=STATUS[route])
            request = asyncio.ensure_future(player.ask(ask))
            await gate.reached()
            await end(fleet.workers[0], "gone")
            await play(player, Held("gone", NOBODY))
            gate.open()
            await request
            await play(player, Held("gone", 0))

    asyncio.run(race())


@runs
async def test_a_stateless_request_whose_claim_ends_on_its_way() -> None:
    """It runs where it was sent and claims nothing."""
    async with fleet_of() as (fleet, player):
        await play(player, Mark(), Ask(0, TOOL, cookie="=metric", ran=0))
        gate = Gate()
        after_find(fleet.workers[1], gate)
        ask = Ask(1, "POST /aggregate_metrics", cookie="=metric", ran=0, leaves=True)
        request = asyncio.ensure_future(player.ask(ask))
        await gate.reached()
        await end(fleet.workers[0], "metric")
        gate.open()
        await request
        await play(player, NothingNew())


@pytest.mark.parametrize("route", [TOOL, SEED, SOCKET], ids=["a call", "a seed", "a websocket"])
def test_a_claim_that_moves_while_a_request_for_it_is_on_its_way(route: str) -> None:
    """The old owner says who has it now, and the request goes there."""

    async def race() -> None:
        async with fleet_of() as (fleet, player):
            await play(player, Ask(0, TOOL, cookie="=moves", ran=0))
            moved = False

            async def move(_order: Any) -> None:
                nonlocal moved
                if not moved:
                    moved = True
                    await end(fleet.workers[0], "moves")
                    await claim(fleet.workers[2], "moves")

            before_relay(fleet.workers[1], move)
            body = {T: "moves"} if route == SEED else None
            ask = Ask(1, route, cookie="=moves", body=body, ran=2, count=1, status=STATUS[route])
            await play(player, ask, Held("moves", 2))

    asyncio.run(race())


@pytest.mark.parametrize("route", [SEED, SOCKET], ids=["a seed", "a websocket"])
def test_a_request_whose_claim_moves_again_and_again(route: str) -> None:
    """After two moves it is refused with 409, and nobody has run it."""

    async def race() -> None:
        async with fleet_of() as (fleet, player):
            await play(player, Ask(0, TOOL, cookie="=hops", ran=0))
            moves = 0

            async def move(order: Any) -> None:
                nonlocal moves
                moves += 1
                here = next(worker for worker in fleet.workers if worker.incarnation == order.owner)
                await end(here, "hops")
                await claim(fleet.workers[2 if here is fleet.workers[0] else 0], "hops")

            before_relay(fleet.workers[1], move)
            body = {T: "hops"} if route == SEED else None
            refused = Ask(1, route, cookie="=hops", body=body, ran=NOBODY, status=409, error="session_conflict")
            await play(player, refused, HeldByOne("hops"))
            assert moves == 3

    asyncio.run(race())


@runs
async def test_a_claim_that_ends_and_is_gone_with_another_worker() -> None:
    """The request hears what became of the session last: its new owner has died."""
    async with fleet_of() as (fleet, player):
        await play(player, Ask(0, TOOL, cookie="=fate", ran=0))

        async def move(_order: Any) -> None:
            await end(fleet.workers[0], "fate")
            await claim(fleet.workers[2], "fate")
            await fleet.kill(2)

        before_relay(fleet.workers[1], move)
        await play(player, Ask(1, TOOL, cookie="=fate", ran=NOBODY, status=410, error="session_gone"))


@pytest.mark.parametrize("route", [TOOL, SOCKET], ids=["a call", "a websocket"])
def test_an_owner_that_dies_before_the_request_arrives(route: str) -> None:
    """410: the session is lost with it."""

    async def race() -> None:
        async with fleet_of() as (fleet, player):
            await play(player, Ask(0, SEED, body={T: "dies"}, ran=0))

            async def die(_order: Any) -> None:
                await fleet.kill(0)

            before_relay(fleet.workers[1], die)
            gone = Ask(1, route, cookie="=dies", ran=NOBODY, status=410, error="session_gone", keeps=True)
            await play(player, gone)

    asyncio.run(race())


@pytest.mark.parametrize("placement", ["accepting", "least_sessions"])
def test_a_minted_id_that_another_worker_has_claimed(placement: str) -> None:
    """409: the id is another session's, wherever the new one was placed."""

    async def race() -> None:
        async with fleet_of(placement=placement) as (fleet, player):
            fleet.workers[0].routing._forwarder.new_id = lambda: "taken"
            await claim(fleet.workers[1], "taken")
            await claim(fleet.workers[0], "busy-1")
            await play(
                player,
                Ask(0, SEED, ran=NOBODY, status=409, error="session_conflict", leaves=True),
                Ask(0, TOOL, ran=NOBODY, status=409, error="session_conflict", leaves=True),
                Held("taken", 1),
            )

    asyncio.run(race())


@runs
async def test_a_start_that_is_placed_on_a_worker_that_stops() -> None:
    """It says so before it runs anything, and another worker takes the session."""
    async with fleet_of(placement="least_sessions") as (fleet, player):
        await claim(fleet.workers[1], "busy-2")
        fleet.workers[0].routing.router.stopping = True
        await play(player, Ask(1, SEED, body={T: "placed"}, ran=2, same="placed"), Held("placed", 2))


@runs
async def test_a_start_that_is_placed_while_its_id_is_claimed() -> None:
    """The worker with the most room finds the id taken; its owner runs the start."""
    async with fleet_of(placement="least_sessions") as (fleet, player):
        await claim(fleet.workers[1], "busy-3")
        await claim(fleet.workers[2], "busy-4")
        claimed = False

        async def race(_order: Any) -> None:
            nonlocal claimed
            if not claimed:
                claimed = True
                await claim(fleet.workers[2], "quick")

        before_relay(fleet.workers[1], race)
        await play(player, Ask(1, SEED, body={T: "quick"}, ran=2, same="quick"), Held("quick", 2))


@runs
async def test_an_agents_seed_that_creates_nothing_while_another_request_runs() -> None:
    """It made the claim, but somebody else has come for the id: it stays for the window, whatever becomes of that."""
    async with fleet_of(kind="agent") as (_, player):
        seed = asyncio.ensure_future(player.ask(Ask(0, AGENTS, body={A: "x", "status": 422, "wait": 0.05}, status=422)))
        await play(player, Held("x", 0))
        other = player.ask(Ask(1, "POST /run", cookie="=x", body={"hold": True, "raise": True}, status=500))
        running = asyncio.ensure_future(other)
        await seed
        await play(player, Ask(0, "POST /release", ran=0))
        await running
        await play(player, Held("x", 0), Later("x"))


@runs
async def test_an_agents_seed_that_creates_nothing_after_another_request_has_succeeded() -> None:
    """The id is in use: its claim stays."""
    async with fleet_of(kind="agent") as (_, player):
        failing = {A: "y", "status": 422, "hold": True}
        seed = asyncio.ensure_future(player.ask(Ask(0, AGENTS, body=failing, status=422, ran=0)))
        await play(
            player, Held("y", 0), Ask(1, "POST /run", cookie="=y", ran=0, count=1), Ask(0, "POST /release", ran=0)
        )
        await seed
        await play(player, Ask(1, "POST /run", cookie="=y", ran=0, count=2), Held("y", 0))


@runs
async def test_a_late_seed_is_refused_before_its_body_is_sent() -> None:
    """The owner says no to the head; the body stays where it was accepted."""
    async with fleet_of() as (fleet, player):
        await play(player, Ask(0, CLOSE, body={T: "late-2"}, ran=0))
        late = Ask(1, SEED, body={T: "late-2"}, pad=1 << 20, ran=NOBODY, status=409, error="session_closed")
        await play(player, late)
        row = fleet.segment.ring.row(fleet.workers[0].incarnation)
        assert row is not None
        assert row.relayed_in == 0


@runs
async def test_no_claim_is_given_back_under_a_request() -> None:
    """A sweep that comes while the request runs leaves the claim, and so does an agent's failed seed."""
    async with fleet_of(kind="agent") as (fleet, player):
        held = asyncio.ensure_future(player.ask(Ask(0, "POST /run", cookie="=busy", body={"hold": True}, ran=0)))
        await play(player, Held("busy", 0))
        own = fleet.workers[0].routing._claims.book.get("busy")
        assert own is not None
        assert not fleet.workers[0].routing._claims.give_back(own)
        await play(player, Ask(1, AGENTS, body={A: "busy", "status": 422}, status=422, ran=0), Held("busy", 0))
        await play(player, Ask(2, "POST /release", cookie="=busy", ran=0))
        await held
        await play(player, Later("busy"))
