"""What the fleet has to know of a server's config."""

from __future__ import annotations

from dataclasses import dataclass

MAX_WORKERS = 120
"""The worker ring has 256 rows: two generations side by side, and dead rows that wait for their repair."""

MAX_PROCESSES = 2 * MAX_WORKERS


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """One server's part of the config; durations in seconds.

    may_share   its sessions can be told apart, or it keeps none: it may have several workers
    """

    name: str
    workers: int
    boot_tries: int = 5
    boot_seconds: float = 120.0
    graceful_seconds: float = 30.0
    drain_seconds: float = 300.0
    may_share: bool = True
