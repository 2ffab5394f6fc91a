"""How long a seat stays empty after its worker died."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """The pause doubles with every death in a row, and starts anew once a worker has run well for a while.

    A quarter of a second keeps the first replacement quick, and gives an app that waits for its database about
    4 s in `boot_tries: 5`. The cap bounds both the load of a hopeless app and the wait after it is repaired.
    """

    first_seconds: float = 0.25
    factor: float = 2.0
    most_seconds: float = 30.0
    well_seconds: float = 60.0

    def delay_seconds(self, deaths_in_a_row: int) -> float:
        """The pause after this many deaths in a row, 1 or more."""
        doublings = min(deaths_in_a_row - 1, 64)  # a float has no room for the factor's power of a week of deaths
        return float(min(self.first_seconds * self.factor**doublings, self.most_seconds))

    def ran_well(self, ready_seconds: float) -> bool:
        """Whether a worker that was ready for so long ends the row of deaths before it."""
        return ready_seconds >= self.well_seconds
