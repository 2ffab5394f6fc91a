"""A lone worker gets a sibling: from then on each of its sessions is claimed like any other."""

from __future__ import annotations

import asyncio

from conformance.script import AGENTS, CLOSE, NOBODY, SEED, TOOL, VERIFY, A, Ask, Held, Later, PrivateSockets, T
from routing.fleets import fleet_of, play

from shmclaims import StripeBusy


def test_every_session_is_claimed_before_a_second_worker_is_announced() -> None:
    """Open, ended, closed and never started ones, and one whose request runs: the second worker relays for them all."""

    async def grow() -> None:
        async with fleet_of(workers=1) as (fleet, player):
            await play(
                player,
                Ask(0, SEED, body={T: "open"}, ran=0),
                Ask(0, SEED, body={T: "ended"}, ran=0),
                Ask(0, VERIFY, cookie="=ended", ran=0),
                Ask(0, CLOSE, body={T: "closed"}, ran=0),
                Ask(0, TOOL, ran=0, save="never"),
                Held("open", NOBODY),
                PrivateSockets(0),
            )
            running = asyncio.ensure_future(player.ask(Ask(0, TOOL, cookie="=busy", body={"hold": True}, ran=0)))
            await asyncio.sleep(0)
            await fleet.workers[0].routing.share()
            await play(player, PrivateSockets(1), *(Held(name, 0) for name in ("open", "ended", "closed", "busy")))
            await fleet.add(1, workers=2)
            await play(
                player,
                Ask(1, TOOL, cookie="=open", ran=0, count=2),
                Ask(1, TOOL, cookie="never", ran=0, count=2),
                Ask(1, SEED, body={T: "closed"}, ran=NOBODY, status=409, error="session_closed"),
                Ask(1, "POST /release", cookie="=busy", ran=0),
            )
            await running
            await play(player, Later("ended"), Later("closed"), Later("busy"), Held("open", 0))

    asyncio.run(grow())


def test_requests_go_on_meanwhile() -> None:
    """Two hundred sessions are handed over while new ones come and old ones end: each is claimed once."""

    async def grow() -> None:
        async with fleet_of(workers=1) as (fleet, player):
            for number in range(200):
                await player.ask(Ask(0, SEED, body={T: f"s-{number}"}))
            sharing = asyncio.ensure_future(fleet.workers[0].routing.share())
            turns = 0
            going = []
            while not sharing.done():
                await asyncio.sleep(0)
                turns += 1
                going.append(asyncio.ensure_future(player.ask(Ask(0, SEED, body={T: f"new-{turns}"}))))
                going.append(asyncio.ensure_future(player.ask(Ask(0, CLOSE, body={T: f"s-{200 - turns}"}))))
            await sharing
            assert turns > 1
            assert not all(task.done() for task in going)
            await asyncio.gather(*going)
            book = fleet.workers[0].routing._claims.book
            assert all(own.handle is not None for own in book)
            assert fleet.segment.table.count()[0] == len(book) >= 200
            await fleet.add(1, workers=2)
            await play(player, Ask(1, TOOL, cookie="=s-1", ran=0), Ask(1, SEED, body={T: "after"}, ran=1))

    asyncio.run(grow())


def test_a_session_that_ends_before_it_is_handed_over() -> None:
    """Its turn has not come yet when its claim's time is up: it has none, and gets none."""

    async def grow() -> None:
        async with fleet_of(workers=1) as (fleet, player):
            for number in range(150):
                await player.ask(Ask(0, SEED, body={T: f"s-{number}"}))
            claims = fleet.workers[0].routing._claims
            sharing = asyncio.ensure_future(fleet.workers[0].routing.share())
            for _ in range(3):  # turns of the loop: to open the private socket, and to claim the first hundred
                if fleet.segment.table.count()[0] == 0:
                    await asyncio.sleep(0)
            assert fleet.segment.table.count()[0] == 100
            for session in ("s-10", "s-149"):
                own = claims.book.get(session)
                assert own is not None
                assert (own.handle is None) is (session == "s-149")
                assert claims.give_back(own)
            await sharing
            assert fleet.segment.table.count()[0] == len(claims.book) == 148
            await play(player, Held("s-10", NOBODY), Held("s-149", NOBODY))

    asyncio.run(grow())


def test_a_hand_over_that_fails_can_be_done_again() -> None:
    """A stripe that stays busy ends it with an error; what is claimed by then stays, and nothing is lost."""

    async def grow() -> None:
        async with fleet_of(workers=1, kind="agent") as (fleet, player):
            for number in range(20):
                await player.ask(Ask(0, AGENTS, body={A: f"s-{number}"}))
            table = fleet.workers[0].spec.segment.table
            try_claim, calls = table.try_claim, 0

            def busy(*arguments: object, **named: object) -> object:
                nonlocal calls
                calls += 1
                if 8 <= calls < 20:
                    raise StripeBusy("another one has it")
                if calls == 20:
                    raise OSError("the segment is no more")
                return try_claim(*arguments, **named)  # type: ignore[arg-type]

            table.try_claim = busy  # type: ignore[method-assign,assignment]
            try:
                await fleet.workers[0].routing.share()
            except OSError:
                assert fleet.segment.table.count()[0] == 7
            else:
                raise AssertionError("it should have failed")
            await play(player, Ask(0, "POST /run", cookie="=s-19", ran=0, count=2))
            await fleet.workers[0].routing.share()
            assert fleet.segment.table.count()[0] == 20
            await fleet.add(1, workers=2)
            await play(player, *(Ask(1, "POST /run", cookie=f"=s-{number}", ran=0) for number in range(20)))

    asyncio.run(grow())
