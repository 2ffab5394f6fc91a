"""The states of a seat and of the worker in it, as one table.

A server has a fixed number of seats; a worker is one incarnation in a seat.

                 START          SPAWNED         SAID_READY           STOP             DIED
    EMPTY ------------> STARTING ----> BOOTING ----> READY ----------------> STOPPING ----> EMPTY
      | WAIT                              |            | DRAIN       STOP |      |
      +------> BACKOFF --- START          | STOP       +----> DRAINING ---+      |
      | GIVE_UP                           +--------------------------------------+
      +------> FAILED

A worker may die in every state in which it has a process. The seat is EMPTY then; what follows (a pause, a new worker,
nothing) is the next step.

What a worker says can cross with what it is told: messages that come late change nothing. Everything that is not in
the table is illegal: it names both sides and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class State(Enum):
    """Of a seat."""

    EMPTY = "empty"  # nothing runs, nothing is planned
    STARTING = "starting"  # a process has been asked for
    BOOTING = "booting"  # it runs, and is not ready yet
    READY = "ready"  # it serves and gets new sessions
    DRAINING = "draining"  # it serves the sessions it has, until they end, and gets no new ones
    STOPPING = "stopping"  # it accepts nothing new, ends what runs, and exits
    BACKOFF = "backoff"  # nothing runs; the next start is due later
    FAILED = "failed"  # given up


class Step(Enum):
    """What can happen to a seat: what the fleet decides, what the worker says, what the kernel shows."""

    START = "start"  # decided: ask for a process
    WAIT = "wait"  # decided: start later
    CANCEL = "cancel"  # decided: do not start after all
    GIVE_UP = "give up"  # decided: never again
    DRAIN = "drain"  # decided: no new sessions
    STOP = "stop"  # decided
    SPAWNED = "spawned"
    SPAWN_FAILED = "spawn failed"
    SAID_READY = "said ready"
    SAID_BOOT_FAILED = "said boot failed"
    SAID_QUIET = "said quiet"
    SAID_DRAINED = "said drained"
    SAID_SHARED = "said shared"
    DIED = "died"


TABLE: Mapping[State, Mapping[Step, State]] = MappingProxyType(
    {
        State.EMPTY: {Step.START: State.STARTING, Step.WAIT: State.BACKOFF, Step.GIVE_UP: State.FAILED},
        State.BACKOFF: {Step.START: State.STARTING, Step.CANCEL: State.EMPTY, Step.GIVE_UP: State.FAILED},
        State.FAILED: {},
        State.STARTING: {Step.SPAWNED: State.BOOTING, Step.SPAWN_FAILED: State.EMPTY},
        State.BOOTING: {
            Step.SAID_READY: State.READY,
            Step.SAID_BOOT_FAILED: State.BOOTING,  # it is about to exit
            Step.STOP: State.STOPPING,
            Step.DIED: State.EMPTY,
        },
        State.READY: {
            Step.DRAIN: State.DRAINING,
            Step.STOP: State.STOPPING,
            Step.SAID_QUIET: State.STOPPING,  # somebody sent SIGTERM to the worker itself
            Step.SAID_SHARED: State.READY,
            Step.DIED: State.EMPTY,
        },
        State.DRAINING: {
            Step.SAID_QUIET: State.DRAINING,
            Step.SAID_DRAINED: State.DRAINING,
            Step.SAID_SHARED: State.DRAINING,
            Step.STOP: State.STOPPING,
            Step.DIED: State.EMPTY,
        },
        State.STOPPING: {
            Step.SAID_READY: State.STOPPING,
            Step.SAID_BOOT_FAILED: State.STOPPING,
            Step.SAID_QUIET: State.STOPPING,
            Step.SAID_DRAINED: State.STOPPING,
            Step.SAID_SHARED: State.STOPPING,
            Step.DIED: State.EMPTY,
        },
    }
)

LIVE = frozenset({State.BOOTING, State.READY, State.DRAINING, State.STOPPING})
"""There is a process."""


class IllegalStep(Exception):
    """Something happened that cannot happen in that state. Nothing has changed."""

    def __init__(self, state: State, step: Step, subject: str) -> None:
        super().__init__(f"{subject}: {step.value!r} cannot happen in state {state.value!r}")
        self.state = state
        self.step = step


def next_state(state: State, step: Step, *, subject: str = "a worker") -> State:
    """The state after `step`. Raises IllegalStep, which names `subject`, the state and the step."""
    try:
        return TABLE[state][step]
    except KeyError:
        raise IllegalStep(state, step, subject) from None
