"""The claim table: which worker owns which session, in POSIX shared memory.

One `Segment` per server. The supervisor creates it, registers workers in its `ring`, marks dead ones, repairs their
stripes (`StripeRepair`) and retires old records (`GoneSweep`); a worker binds its `table` and claims; everybody of
the user may `attach` and read.
"""

from __future__ import annotations

from shmclaims.check import check
from shmclaims.claims import (
    AlreadyClaimed,
    Claim,
    ClaimError,
    ClaimGone,
    ClaimState,
    ClaimTimeout,
    DamagedSlot,
    Handle,
    StripeBusy,
    TableFull,
)
from shmclaims.layout import RowState, SeatState
from shmclaims.segment import NoSegment, Segment, SegmentError, remove_stale
from shmclaims.stripes import StripeCorrupt, StripeRepair, Stripes
from shmclaims.sweep import GoneSweep
from shmclaims.table import ClaimTable
from shmclaims.workers import OwnRow, RingFull, RowView, SeatView, WorkerRing

__all__ = [
    "AlreadyClaimed",
    "Claim",
    "ClaimError",
    "ClaimGone",
    "ClaimState",
    "ClaimTable",
    "ClaimTimeout",
    "DamagedSlot",
    "GoneSweep",
    "Handle",
    "NoSegment",
    "OwnRow",
    "RingFull",
    "RowState",
    "RowView",
    "SeatState",
    "SeatView",
    "Segment",
    "SegmentError",
    "StripeBusy",
    "StripeCorrupt",
    "StripeRepair",
    "Stripes",
    "TableFull",
    "WorkerRing",
    "check",
    "remove_stale",
]
