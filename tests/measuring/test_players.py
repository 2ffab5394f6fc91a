"""What a player makes of the replies to its session."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from benchmarks.clients.players import Player

Act = tuple[str, Any]

SESSIONS: list[tuple[list[Act], str]] = [
    ([("step", {"count": 8}), ("step", {"count": 9}), ("end", {"count": 9})], "right"),
    ([("step", {"count": 1})], "wrong"),
    ([("step", {"count": 8}), ("step", {"count": 8})], "wrong"),
    ([("step", {"count": 8}), ("step", {"count": 10})], "wrong"),
    ([("step", {"count": 8}), ("end", {"count": 0})], "wrong"),
    ([("step", None)], "refused"),
    ([("step", None), ("step", {"count": 8}), ("end", {"count": 8})], "refused"),
    ([("step", None), ("step", {"count": 9}), ("end", {"count": 9})], "refused"),
    ([("step", None), ("step", {"count": 10})], "wrong"),
    ([("step", None), ("step", {"count": 1})], "wrong"),
]


@pytest.mark.parametrize(("acts", "outcome"), SESSIONS)
def test_a_session_is_right_wrong_or_refused(acts: list[Act], outcome: str) -> None:
    """A count that is not the session's is wrong; a request that failed may have been counted, once."""
    assert asyncio.run(_play(acts)).outcome == outcome


async def _play(acts: list[Act]) -> Player:
    player = Player(None)  # type: ignore[arg-type]
    replies = iter([{"count": 7, "pid": 1}, *[reply for _, reply in acts]])

    async def ask(_path: str, _body: dict[str, int]) -> Any:
        reply = next(replies)
        if reply is None:
            player.refused.append("503")
        return reply

    player._ask = ask  # type: ignore[method-assign]
    await player.seed()
    for act, reply in acts:
        assert await getattr(player, act)() is (reply is not None)
    return player
