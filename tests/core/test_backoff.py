"""The pause between a death and the next start."""

from __future__ import annotations

import pytest

from supervisor.core.backoff import BackoffPolicy


def test_the_pause_doubles_up_to_the_cap() -> None:
    """Quick at first, bounded at last, also after a week of deaths; sooner for a worker that had served."""
    policy = BackoffPolicy(first_seconds=0.25, most_seconds=3.0, most_after_ready_seconds=1.0)
    boots = [policy.delay_seconds(deaths, was_ready=False) for deaths in (1, 2, 3, 4, 5, 6, 1_000_000)]
    assert boots == [0.25, 0.5, 1.0, 2.0, 3.0, 3.0, 3.0]
    assert [policy.delay_seconds(deaths, was_ready=True) for deaths in (1, 2, 3, 4)] == [0.25, 0.5, 1.0, 1.0]


@pytest.mark.parametrize(("ready_seconds", "well"), [(0.0, False), (9.9, False), (10.0, True)])
def test_running_well_takes_a_while(ready_seconds: float, well: bool) -> None:
    """A worker that was ready for ten seconds ends the row of deaths before it."""
    assert BackoffPolicy().ran_well(ready_seconds) is well
