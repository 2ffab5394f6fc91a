"""The suites, in the order of the table."""

from __future__ import annotations

from benchmarks.harness.rows import Suite
from benchmarks.suites import access, adapters, relay, table

ALL: tuple[Suite, ...] = (relay.SUITE, table.SUITE, adapters.SUITE, access.SUITE)
