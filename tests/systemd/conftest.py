"""One machine for all tests of units, a service for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from systemd.machine import Machine, NoMachine, Unit, why_not


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    """A machine under a real systemd; skips where there can be none."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    try:
        made = Machine()
    except NoMachine as error:
        pytest.skip(f"systemd does not come up in a sandbox here: {error}")
    try:
        made.prepare()
        yield made
    finally:
        made.close()


@pytest.fixture
def unit(machine: Machine) -> Iterator[Callable[..., Unit]]:
    """Makes services; after the test nothing of them may be left."""
    made: list[Unit] = []

    def make(name: str, **options: Any) -> Unit:
        made.append(Unit(machine, name, **options))
        return made[-1]

    yield make
    for one in made:
        print(one.journal())
        one.remove()
    assert [line for one in made for line in one.left()] == []
