"""Records of closed sessions, with and without a claim to go with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from server_adapters.closed_sessions import ClosedSessionRecords, claim_of


class Clock:
    """Monotonic seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Claim:
    """A session's claim as the app sees it; `end` ends it."""

    def __init__(self, session: str | None) -> None:
        self.session = session
        self.said: list[str] = []
        self.callbacks: list[Callable[[], object]] = []

    def close(self) -> None:
        self.said.append("close")

    def on_end(self, callback: Callable[[], object]) -> None:
        self.callbacks.append(callback)

    def end(self) -> None:
        """The claim ends."""
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()


def scope_of(claim: Claim | None) -> dict[str, Any]:
    """A scope with the claim, or of a plain server."""
    return {"extensions": {} if claim is None else {"gym_supervise": claim}}


def test_a_record_goes_with_its_claim() -> None:
    """Not before it, however long that takes, and not after it."""
    clock, claim = Clock(), Claim("a")
    records: ClosedSessionRecords[str] = ClosedSessionRecords(window_seconds=10, clock=clock)
    assert records.close("a", "receipt", scope_of(claim)) == "receipt"
    assert claim.said == ["close"]
    clock.now = 1e6
    assert records.get("a") == "receipt"
    assert "a" in records
    claim.end()
    assert records.get("a") is None
    assert len(records) == 0


def test_the_first_close_counts() -> None:
    """A repeated close gets what the first one left, and does not prolong anything."""
    claim = Claim("a")
    records: ClosedSessionRecords[str] = ClosedSessionRecords()
    records.close("a", "first", scope_of(claim))
    assert records.close("a", "second", scope_of(claim)) == "first"
    assert len(claim.callbacks) == 1


def test_without_a_claim_a_record_lasts_the_window() -> None:
    """On a plain server, counted from the first close; and those in front do not keep those behind."""
    clock = Clock()
    records: ClosedSessionRecords[int] = ClosedSessionRecords(window_seconds=10, clock=clock)
    records.close("a", 1, scope_of(None))
    clock.now = 5
    records.close("a", 2, {"type": "http"})
    records.close("b", 3, scope_of(None))
    clock.now = 9.9
    assert (records.get("a"), records.get("b")) == (1, 3)
    clock.now = 10
    assert (records.get("a"), records.get("b"), len(records)) == (None, 3, 1)
    clock.now = 15
    assert len(records) == 0


def test_a_claim_of_another_session_is_not_closed() -> None:
    """A close that names another session than the request's is one without a claim."""
    clock, claim = Clock(), Claim("other")
    records: ClosedSessionRecords[str] = ClosedSessionRecords(window_seconds=10, clock=clock)
    records.close("a", "receipt", scope_of(claim))
    assert claim.said == []
    clock.now = 10
    assert "a" not in records


def test_a_session_that_opens_again_is_forgotten() -> None:
    """And closed again under the same claim, its new record goes with that as well; the claim is asked but once."""
    claim = Claim("a")
    records: ClosedSessionRecords[str] = ClosedSessionRecords()
    records.close("a", "first", scope_of(claim))
    records.forget("a")
    assert records.get("a") is None
    assert records.close("a", "second", scope_of(claim)) == "second"
    assert len(claim.callbacks) == 1
    claim.end()
    assert len(records) == 0
    records.close("a", "third", scope_of(Claim("a")))
    assert records.get("a") == "third"


def test_the_claim_is_found_in_the_scope() -> None:
    """Where gym-supervise runs the server; a scope without extensions has none."""
    claim = Claim("a")
    assert claim_of(scope_of(claim)) is claim
    assert claim_of({}) is None
    assert claim_of({"extensions": None}) is None
