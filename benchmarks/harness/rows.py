"""What the harness measures, as data: rows of the table, the samples that they are made of, and where these come from.

A *case* is one thing done to one *variant* (a way to serve the same app); running it once gives a sample. A *row* makes
one figure out of the samples of one round, such as a ratio of two variants. A *suite* opens the servers and offers the
cases of some rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal

Sample = dict[str, float]
"""What one run of a case has measured: seconds, bytes and counts, by name."""

Key = tuple[str, str]
"""A case and a variant of it."""

Round = Mapping[Key, Sample]


@dataclass(frozen=True)
class Figure:
    """How a row's figure is made of the samples of a round that has all of `needs`."""

    needs: tuple[Key, ...]
    value: Callable[[Round], float]


class Unmeasurable(Exception):
    """A variant or a case that cannot be measured here; the text says why."""


@dataclass(frozen=True)
class Mark:
    """What a row's median should reach, and what would be better still; `best` says which way is good."""

    reach: float
    stretch: float | None = None
    best: Literal["least", "most"] = "least"

    def met_by(self, figure: float) -> Literal["stretch", "reach", "missed"]:
        """How far `figure` comes."""

        def passes(bound: float) -> bool:
            return figure <= bound if self.best == "least" else figure >= bound

        if self.stretch is not None and passes(self.stretch):
            return "stretch"
        return "reach" if passes(self.reach) else "missed"


@dataclass(frozen=True)
class Row:
    """One line of the table. Rows with a `variant` share lines by `what`, and each variant is a column."""

    name: str
    what: str
    unit: str
    figure: Figure
    mark: Mark | None = None
    variant: str = ""

    @property
    def needs(self) -> tuple[Key, ...]:
        """The cases and variants that it is made of."""
        return self.figure.needs


@dataclass(frozen=True)
class Case:
    """What is run once in each round of its suite, in random order with the others; `run` gives its sample."""

    name: str
    variant: str
    run: Callable[[], Sample]

    @property
    def key(self) -> Key:
        """Its place in a round."""
        return self.name, self.variant


@dataclass
class Opened:
    """The cases of a suite whose servers run, and the variants that cannot be measured here, each with the reason."""

    cases: list[Case] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite:
    """Rows that are measured together. `open` starts what the wanted cases need and ends it again.

    `rounds` is how many the full run has; `warms` says whether a first round is run and thrown away.
    """

    name: str
    about: str
    rounds: int
    rows: Sequence[Row]
    open: Callable[[frozenset[Key]], AbstractContextManager[Opened]]
    warms: bool = True


def ratio(name: str, over: Key, under: Key) -> Figure:
    """`name` of one sample over that of another."""
    return Figure((over, under), lambda samples: samples[over][name] / samples[under][name])


def difference(name: str, more: Key, less: Key, *, times: float = 1.0) -> Figure:
    """`name` of one sample less that of another, `times` a factor."""
    return Figure((more, less), lambda samples: (samples[more][name] - samples[less][name]) * times)


def single(name: str, key: Key, *, times: float = 1.0) -> Figure:
    """`name` of one sample, `times` a factor."""
    return Figure((key,), lambda samples: samples[key][name] * times)
