"""Claims from an event loop: room and its warnings, busy stripes, overwritten records, claims that got lost."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest
from conformance.memory import MemoryFleet
from conformance.player import Player
from conformance.script import NOBODY, SEED, TOOL, VERIFY, Ask, Held, T
from routing.fleets import fleet_of, play

from shmclaims import StripeBusy
from supervisor.routing.claims import SharedClaims


def claims_of(fleet: MemoryFleet, index: int) -> SharedClaims:
    """A worker's claims."""
    claims = fleet.workers[index].routing._claims
    assert isinstance(claims, SharedClaims)
    return claims


async def fill(player: Player, on: int, prefix: str, number: int) -> None:
    """So many sessions on one worker."""
    for n in range(number):
        await player.ask(Ask(on, SEED, body={T: f"{prefix}-{n}"}, ran=on))


def test_a_warning_comes_before_the_table_is_full(caplog: pytest.LogCaptureFixture) -> None:
    """At 80 %, once; and again after there was room."""

    def warnings() -> int:
        return sum("raise claims.max_sessions" in record.message for record in caplog.records)

    async def run() -> None:
        async with fleet_of(max_sessions=20) as (fleet, player):
            await fill(player, 0, "a", 16)
            assert warnings() == 0
            await fill(player, 0, "b", 2)
            assert warnings() == 1
            for own in list(claims_of(fleet, 0).book):
                assert claims_of(fleet, 0).give_back(own)
            await fill(player, 0, "c", 18)
            assert warnings() == 2

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())


def test_a_stripe_that_stays_busy() -> None:
    """503 with Retry-After once `claim_seconds` are over, on the owner's side of a relay too; nothing has run."""

    async def run() -> None:
        async with fleet_of(placement="least_sessions") as (fleet, player):
            await fill(player, 0, "a", 1)
            for worker in fleet.workers:

                def busy(*_: object, **__: object) -> object:
                    raise StripeBusy("another one has it")

                worker.spec.segment.table.try_claim = busy  # type: ignore[method-assign,assignment]
                worker.routing._claims._claim_seconds = 0.02  # type: ignore[attr-defined]
            await play(
                player,
                Ask(0, TOOL, cookie="=busy", ran=NOBODY, status=503, error="claim_timeout", keeps=True),
                Ask(0, SEED, body={T: "busy-2"}, ran=NOBODY, status=503, error="claim_timeout"),
                Ask(0, SEED, ran=NOBODY, status=503, error="claim_timeout", leaves=True),
            )

    asyncio.run(run())


def test_a_claim_for_an_id_in_a_reply_that_cannot_be_made() -> None:
    """The app has run, its reply is withheld: a client must not get a name for a session that nobody holds."""

    async def run() -> None:
        async with fleet_of(max_sessions=4) as (fleet, player):
            await fill(player, 0, "a", 3)
            await play(
                player,
                Ask(0, SEED, ran=0, save="a"),
                Ask(0, "POST /rotate", cookie="a", body={"to": "new"}, status=503, error="table_full", keeps=True),
                Held("new", NOBODY),
                Ask(1, TOOL, cookie="a", ran=0, count=2),
            )
            assert fleet.workers[0].routing._replies.counts["table_full"] == 1

    asyncio.run(run())


def test_a_gone_session_whose_slot_is_needed(caplog: pytest.LogCaptureFixture) -> None:
    """Each is logged and counted: from then on its id can start empty."""

    async def run() -> int:
        async with fleet_of(workers=5, max_sessions=16) as (fleet, player):
            for worker in range(4):
                await fill(player, worker, f"lost-{worker}", 16)
                await fleet.kill(worker)
            await fill(player, 4, "new", 16)
            gone = fleet.segment.table.count()[1]
            assert fleet.segment.table.count()[0] == 16
            return 64 - gone

    with caplog.at_level(logging.WARNING):
        overwritten = asyncio.run(run())
    logged = [
        record.message for record in caplog.records if "the table needed the slot of gone session" in record.message
    ]
    assert len(logged) == overwritten > 0


def test_a_claim_that_the_book_lacks_is_given_back() -> None:
    """An exception between a claim's commit and its entry, such as a Ctrl-C, must not leave it for ever."""

    async def run() -> None:
        async with fleet_of() as (fleet, player):
            await fill(player, 0, "kept", 3)
            fleet.workers[0].spec.segment.table.try_claim(b"lost", now=time.time())
            await play(player, Held("lost", 0))
            assert claims_of(fleet, 0).audit() == 1
            await play(player, Held("lost", NOBODY), *(Held(f"kept-{n}", 0) for n in range(3)))
            assert claims_of(fleet, 0).audit() == 0

    asyncio.run(run())


def test_a_request_for_a_claim_that_the_book_lacks() -> None:
    """It waits for the audit, and then the session is this worker's again."""

    async def run() -> None:
        async with fleet_of() as (fleet, player):
            fleet.workers[0].spec.segment.table.try_claim(b"lost", now=time.time())
            request = asyncio.ensure_future(player.ask(Ask(0, TOOL, cookie="=lost", ran=0)))
            await asyncio.sleep(0)
            assert claims_of(fleet, 0).audit() == 1
            await request
            await play(player, Ask(1, TOOL, cookie="=lost", ran=0, count=2))

    asyncio.run(run())


@pytest.mark.parametrize("headers", [{}, {"x-ng-checkpoint-close-follows": "1"}], ids=["plain", "before a close"])
def test_an_end_without_a_session_is_counted(caplog: pytest.LogCaptureFixture, headers: dict[str, str]) -> None:
    """Its client has lost the session's cookie; the session stays."""

    async def run() -> None:
        async with fleet_of() as (fleet, player):
            await play(player, Ask(1, VERIFY, headers=headers, ran=1))
            assert fleet.workers[1].routing._replies.counts["end_without_session"] == 1

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert "POST /verify ends a session but names none" in caplog.text


def test_where_a_claim_of_another_worker_was_seen() -> None:
    """A worker that knows a claim's place tells its owner, until the claim ends, moves, or its worker dies."""

    async def run() -> None:
        async with fleet_of() as (fleet, player):
            claims = claims_of(fleet, 1)
            assert claims.owner("a") is None
            await fill(player, 0, "a", 2)
            first = claims_of(fleet, 0)
            for _ in range(2):
                assert claims.owner("a-0") == fleet.workers[0].incarnation
            assert first.owner("a-0") is None  # its own
            own = first.book.get("a-0")
            assert own is not None
            assert first.give_back(own)
            assert claims.owner("a-0") is None
            await claims_of(fleet, 2).take("a-0")
            assert claims.owner("a-0") == fleet.workers[2].incarnation
            assert claims.owner("a-1") == fleet.workers[0].incarnation
            await fleet.kill(0)
            assert claims.owner("a-1") is None

    asyncio.run(run())
