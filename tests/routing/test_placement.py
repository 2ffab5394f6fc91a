"""Which worker gets a new session."""

from __future__ import annotations

import pytest

from supervisor.routing.placement import Placement

CASES = [
    # policy, candidates (incarnation, index, sessions), avoid -> chosen; this worker is incarnation 2
    ("least_sessions", [(1, 0, 5), (2, 1, 5), (3, 2, 4)], (), 3),
    ("least_sessions", [(1, 0, 5), (2, 1, 5), (3, 2, 5)], (), 2),
    ("least_sessions", [(4, 3, 1), (1, 0, 1), (2, 1, 9)], (), 1),
    ("least_sessions", [(1, 0, 0), (2, 1, 9)], (1,), 2),
    ("least_sessions", [(1, 0, 0)], (1,), None),
    ("least_sessions", [], (), None),
    ("accepting", [(1, 0, 0), (2, 1, 9)], (), 2),
    ("accepting", [(1, 0, 0), (3, 2, 9)], (), 1),
    ("accepting", [(1, 0, 7), (2, 1, 0)], (2,), 1),
]


@pytest.mark.parametrize(("policy", "candidates", "avoid", "chosen"), CASES)
def test_choice(
    policy: str, candidates: list[tuple[int, int, int]], avoid: tuple[int, ...], chosen: int | None
) -> None:
    """The ready worker with the fewest sessions, ties to the accepting one, never one that has just said no."""
    assert Placement(policy, 2).choose(candidates, frozenset(avoid)) == chosen


def test_placements_under_way_count() -> None:
    """A burst does not go to one worker while the counts in shared memory lag behind."""
    placement = Placement("least_sessions", 1)
    rows = [(1, 0, 0), (2, 1, 0), (3, 2, 0)]
    chosen = []
    for _ in range(6):
        target = placement.choose(rows)
        assert target is not None
        chosen.append((target, placement.sent(target)))
    assert sorted(target for target, _ in chosen) == [1, 1, 2, 2, 3, 3]
    for _, under_way in chosen:
        under_way.answered()
        under_way.answered()
    assert placement.choose(rows) == 1


def test_what_is_under_way_is_a_guess() -> None:
    """A worker does not take a start itself while another has two sessions fewer, whatever may be on its way there."""
    placement = Placement("least_sessions", 1)
    for _ in range(9):
        placement.sent(2)
    assert placement.choose([(1, 0, 6), (2, 1, 5)]) == 1
    assert placement.choose([(1, 0, 6), (2, 1, 4)]) == 2


@pytest.mark.parametrize(
    ("policy", "counts", "ahead"),
    [
        ("least_sessions", [6, 5, 9], False),
        ("least_sessions", [7, 5, 9], True),
        ("least_sessions", [7], False),
        ("least_sessions", [], False),
        ("accepting", [7, 5], False),
    ],
)
def test_who_is_ahead_says_no(policy: str, counts: list[int], ahead: bool) -> None:
    """Two sessions more than another worker; with the policy `accepting` nobody ever does."""
    candidates = [(number, number, count) for number, count in enumerate(counts, 1)]
    assert Placement(policy, 1).is_ahead(candidates) is ahead
