"""Rounds: every case once, in random order, so that what a machine does at one moment falls on all variants alike.

A figure of a row is made within one round; the table shows the median and the quartiles of the rounds' figures. A
single slow moment moves one figure of one round, and not the comparison.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.harness.rows import Case, Key, Row, Sample


@dataclass(frozen=True)
class Quartiles:
    """First quartile, median, third quartile."""

    low: float
    median: float
    high: float


def quartiles(values: Sequence[float]) -> Quartiles:
    """Of at least one value."""
    if len(values) == 1:
        return Quartiles(values[0], values[0], values[0])
    return Quartiles(*statistics.quantiles(values, n=4, method="inclusive"))


@dataclass
class Rounds:
    """Samples of each round by case and variant, and the cases that failed, each with the reason."""

    samples: list[dict[Key, Sample]] = field(default_factory=list)
    failed: dict[Key, str] = field(default_factory=dict)

    def figures(self, row: Row) -> list[float]:
        """The row's figure in each round that has all its samples."""
        return [row.figure.value(one) for one in self.samples if all(key in one for key in row.needs)]

    def sample_quartiles(self) -> dict[Key, dict[str, Quartiles]]:
        """Each case's own figures over the rounds."""
        found: dict[Key, dict[str, list[float]]] = {}
        for one in self.samples:
            for key, sample in one.items():
                for name, value in sample.items():
                    found.setdefault(key, {}).setdefault(name, []).append(value)
        return {key: {name: quartiles(values) for name, values in each.items()} for key, each in found.items()}


def run(cases: Sequence[Case], rounds: int, *, warms: bool, tell: Callable[[str], None]) -> Rounds:
    """Run every case once a round. One that fails is left out from then on; the others go on."""
    found = Rounds()
    for number in range(0 if warms else 1, rounds + 1):
        tell(f"round {number} of {rounds}" if number else "warm-up")
        samples: dict[Key, Sample] = {}
        for case in random.sample(cases, len(cases)):
            if case.key in found.failed:
                continue
            try:
                samples[case.key] = case.run()
            except Exception as error:
                found.failed[case.key] = f"{type(error).__name__}: {error}"
        if number:
            found.samples.append(samples)
    return found
