"""What the table hands out: a claim, a claimant's handle, and why a claim was refused."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class ClaimState(StrEnum):
    """Whether the worker that holds a claim lives. There is no third state: an ended claim is not in the table."""

    LIVE = "live"
    GONE = "gone"


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A claim as a reader saw it. A msgspec struct, since a lookup makes one: a third of a named tuple's time.

    state         ClaimState.LIVE or GONE; compares equal to "live" and "gone"
    index         the owner's worker index
    incarnation   the owner
    user          the word that the claimant gave
    opened_at     wall seconds
    last_used_at  wall seconds
    prefix        a few readable characters of the session id
    """

    state: ClaimState
    index: int
    incarnation: int
    user: int
    opened_at: int
    last_used_at: int
    prefix: str


class Handle(msgspec.Struct, frozen=True, gc=False):
    """A claimant's hold on its slot: opaque but for `recycled`, the gone record that was overwritten, if one was."""

    slot: int
    control: int
    stripe: int
    recycled: Claim | None = None


class ClaimError(Exception):
    """A claim could not be made, ended or read."""


class StripeBusy(ClaimError):
    """The stripe is held or in repair, tried once: back off and try again. The table is as it was."""


class ClaimTimeout(ClaimError):
    """The stripe stayed busy for the whole time-out."""


class TableFull(ClaimError):
    """Both buckets are full of live claims."""


class DamagedSlot(ClaimError):
    """A slot's checksum is wrong although nobody is writing it: something outside the table wrote to the segment."""


class AlreadyClaimed(ClaimError):
    """A live worker (`claim.incarnation`) holds the session; it may be the caller."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(f"session is claimed by worker {claim.index}, incarnation {claim.incarnation}")
        self.claim = claim


class ClaimGone(ClaimError):
    """The session was claimed by a worker that is gone; `replace_gone` would overwrite the record."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(f"session is gone with worker {claim.index}, incarnation {claim.incarnation}")
        self.claim = claim
