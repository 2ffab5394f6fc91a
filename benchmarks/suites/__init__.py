"""The suites, in the order of the table."""

from __future__ import annotations

from benchmarks.harness.rows import Suite
from benchmarks.suites import accept, access, adapters, failures, memory, mixed, placement, relay, table

ALL: tuple[Suite, ...] = (
    relay.SUITE,
    mixed.SUITE,
    memory.SUITE,
    failures.SUITE,
    accept.SUITE,
    placement.SUITE,
    table.SUITE,
    adapters.SUITE,
    access.SUITE,
)
