"""The seat's table: every state against every step."""

from __future__ import annotations

import pytest

from supervisor.core.worker_state import LIVE, TABLE, IllegalStep, State, Step, next_state

LEGAL = {
    (State.EMPTY, Step.START): State.STARTING,
    (State.EMPTY, Step.WAIT): State.BACKOFF,
    (State.EMPTY, Step.GIVE_UP): State.FAILED,
    (State.BACKOFF, Step.START): State.STARTING,
    (State.BACKOFF, Step.CANCEL): State.EMPTY,
    (State.BACKOFF, Step.GIVE_UP): State.FAILED,
    (State.STARTING, Step.SPAWNED): State.BOOTING,
    (State.STARTING, Step.SPAWN_FAILED): State.EMPTY,
    (State.BOOTING, Step.SAID_READY): State.READY,
    (State.BOOTING, Step.SAID_BOOT_FAILED): State.BOOTING,
    (State.BOOTING, Step.STOP): State.STOPPING,
    (State.BOOTING, Step.DIED): State.EMPTY,
    (State.READY, Step.DRAIN): State.DRAINING,
    (State.READY, Step.STOP): State.STOPPING,
    (State.READY, Step.SAID_QUIET): State.STOPPING,
    (State.READY, Step.SAID_SHARED): State.READY,
    (State.READY, Step.DIED): State.EMPTY,
    (State.DRAINING, Step.SAID_QUIET): State.DRAINING,
    (State.DRAINING, Step.SAID_DRAINED): State.DRAINING,
    (State.DRAINING, Step.STOP): State.STOPPING,
    (State.DRAINING, Step.SAID_SHARED): State.DRAINING,
    (State.DRAINING, Step.DIED): State.EMPTY,
    (State.STOPPING, Step.SAID_READY): State.STOPPING,
    (State.STOPPING, Step.SAID_BOOT_FAILED): State.STOPPING,
    (State.STOPPING, Step.SAID_QUIET): State.STOPPING,
    (State.STOPPING, Step.SAID_DRAINED): State.STOPPING,
    (State.STOPPING, Step.SAID_SHARED): State.STOPPING,
    (State.STOPPING, Step.DIED): State.EMPTY,
}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("step", Step)
def test_every_state_against_every_step(state: State, step: Step) -> None:
    """A step leads where the list above says, or is refused with both sides named."""
    expected = LEGAL.get((state, step))
    if expected is not None:
        assert next_state(state, step) is expected
        return
    with pytest.raises(IllegalStep) as refused:
        next_state(state, step, subject="app, worker 2, pid 7")
    assert str(refused.value) == f"app, worker 2, pid 7: {step.value!r} cannot happen in state {state.value!r}"
    assert (refused.value.state, refused.value.step) == (state, step)


def test_a_live_worker_can_always_die() -> None:
    """Whatever the supervisor knows, the kernel may take a process away."""
    assert {state for state in State if Step.DIED in TABLE[state]} == LIVE


def test_every_state_but_the_first_can_be_reached() -> None:
    """No state is there for nothing."""
    reached = {after for steps in TABLE.values() for after in steps.values()}
    assert reached == set(State)
