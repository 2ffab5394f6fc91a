"""What a player makes of the replies to its session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
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


class Scripted(Player):
    """A player whose server answers as `replies` say; None is an error."""

    replies: Iterator[Any]

    async def _ask(self, _path: str, _body: dict[str, int]) -> Any:
        reply = next(self.replies)
        if reply is None:
            self.refused.append("503")
        return reply


async def _play(acts: list[Act]) -> Player:
    player = Scripted(None)  # type: ignore[arg-type]
    player.replies = iter([{"count": 7, "pid": 1}, *[reply for _, reply in acts]])
    await player.seed()
    for act, reply in acts:
        assert await getattr(player, act)() is (reply is not None)
    return player
