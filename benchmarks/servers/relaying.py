"""A service whose workers hand no connection over, so that every request of another worker's session is relayed: what
stands beside the hand-over, and what pools get that mix sessions.
"""

from __future__ import annotations

import os

VARIABLE = "BENCHMARKS_RELAY_ONLY"


def settle() -> None:
    """In a worker, before it serves: do as its environment says."""
    if os.environ.get(VARIABLE):
        from supervisor.handover import protocols

        protocols.MIXED_INTO.clear()
