"""What every test of the table gets: the checker at its end, and a look for leftovers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from model.herd import Herd, children, names_of

from shmclaims import Segment, check


@pytest.fixture(autouse=True)
def _nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process and no name in /dev/shm outlives a test that made it."""
    made: list[str] = []
    create = Segment.create.__func__  # type: ignore[attr-defined]

    def recorded(cls: type[Segment], *args: Any, **kwargs: Any) -> Segment:
        segment: Segment = create(cls, *args, **kwargs)
        made.append(segment.name)
        return segment

    monkeypatch.setattr(Segment, "create", classmethod(recorded))
    before = set(children())  # another file's, in the same process
    yield
    assert set(children()) <= before
    assert [name for segment in made for name in names_of(segment)] == []


@pytest.fixture
def herd() -> Iterator[Herd]:
    """One stripe of 64 slots in two buckets (so every session may use every slot), sound at the end."""
    made = Herd()
    complaints: list[str] = []
    try:
        yield made
    finally:
        complaints = made.close()
    assert complaints == []


@pytest.fixture
def make_herd() -> Iterator[Callable[..., Herd]]:
    """Herds of any size, each sound at the end."""
    made: list[Herd] = []

    def make(**kwargs: Any) -> Herd:
        made.append(Herd(**kwargs))
        return made[-1]

    complaints: list[str] = []
    try:
        yield make
    finally:
        for one in made:
            complaints += one.close()
    assert complaints == []


@pytest.fixture
def segment() -> Iterator[Segment]:
    """A segment of the default shape for 1,000 sessions, sound at the end."""
    made = Segment.create({"server": "test", "workers": 4}, max_sessions=1000)
    complaints: list[str] = []
    try:
        yield made
    finally:
        complaints = check(made)
        made.unlink()
        made.close()
    assert complaints == []
