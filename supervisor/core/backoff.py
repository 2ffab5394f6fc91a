"""How long a seat stays empty after its worker died."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """The pause doubles with every death in a row, and starts anew once a worker has run well for a while.

    A quarter of a second keeps the first replacement quick, and gives an app that waits for its database about
    4 s in `boot_tries: 5`. A worker that cannot boot is tried ever more seldom, since a boot costs the others their
    processor and helps nobody; one that was ready has served, and its seat is not left empty for long.
    """

    first_seconds: float = 0.25
    factor: float = 2.0
    most_seconds: float = 30.0
    most_after_ready_seconds: float = 2.0
    well_seconds: float = 10.0

    def delay_seconds(self, deaths_in_a_row: int, *, was_ready: bool) -> float:
        """The pause after this many deaths in a row, 1 or more; `was_ready`: the last one before it died."""
        doublings = min(deaths_in_a_row - 1, 64)  # a float has no room for the factor's power of a week of deaths
        most = self.most_after_ready_seconds if was_ready else self.most_seconds
        return float(min(self.first_seconds * self.factor**doublings, most))

    def ran_well(self, ready_seconds: float) -> bool:
        """Whether a worker that was ready for so long ends the row of deaths before it."""
        return ready_seconds >= self.well_seconds
