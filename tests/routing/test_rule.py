"""The session rule, line by line."""

from __future__ import annotations

import itertools

import pytest

from server_adapters.adapter import Reading
from supervisor.routing import rule
from supervisor.routing.rule import ClaimFact, decide

ME = 7
MINE = ClaimFact(ME, live=True)
THEIRS = ClaimFact(3, live=True)
GONE = ClaimFact(2, live=False)

CASES = [
    # reading, claim, owned -> decision
    (Reading(), None, False, rule.RUN),
    (Reading(stateless=True), None, False, rule.RUN),
    (Reading(ends=True), None, False, rule.RUN),
    (Reading(mints=True), None, False, rule.PLACE_MINTED),
    (Reading(mints=True, starts=True), None, False, rule.PLACE_MINTED),
    (Reading(starts=True), None, False, rule.PLACE),
    (Reading(session="a"), None, True, rule.RUN_OWNED),
    (Reading(session="a", starts=True, vouched=True), None, True, rule.RUN_OWNED),
    (Reading(session="a"), THEIRS, False, rule.Relay(3)),
    (Reading(session="a", starts=True, vouched=True), THEIRS, False, rule.Relay(3)),
    (Reading(session="a", stateless=True), THEIRS, False, rule.Relay(3)),
    (Reading(session="a"), MINE, False, rule.CLAIM_AND_RUN),
    (Reading(session="a"), GONE, False, rule.REFUSE_GONE),
    (Reading(session="a", starts=True), GONE, False, rule.REFUSE_GONE),
    (Reading(session="a", vouched=True), GONE, False, rule.REFUSE_GONE),
    (Reading(session="a", starts=True, replaces_gone=True), GONE, False, rule.PLACE),
    (Reading(session="a", replaces_gone=True), GONE, False, rule.REFUSE_GONE),
    (Reading(session="a", judged=True), THEIRS, False, rule.Relay(3)),
    (Reading(session="a", judged=True), GONE, False, rule.RUN),
    (Reading(session="a", judged=True, starts=True), GONE, False, rule.PLACE_UNCLAIMED),
    (Reading(session="a"), None, False, rule.RUN),
    (Reading(session="a", vouched=True), None, False, rule.CLAIM_AND_RUN),
    (Reading(session="a", vouched=True, mints=True), None, False, rule.CLAIM_AND_RUN),
    (Reading(session="a", vouched=True, stateless=True), None, False, rule.RUN),
    (Reading(session="a", starts=True), None, False, rule.PLACE_UNCLAIMED),
    (Reading(session="a", starts=True, replaces_gone=True), None, False, rule.PLACE),
    (Reading(session="a", starts=True, vouched=True), None, False, rule.PLACE),
    (Reading(session="a", conflict=("cookie", "body")), THEIRS, False, rule.REFUSE_CONFLICT),
    (Reading(conflict=("cookie", "body")), None, False, rule.REFUSE_CONFLICT),
    (Reading(session="a", conflict=("cookie", "body")), None, True, rule.REFUSE_CONFLICT),
]


@pytest.mark.parametrize(("reading", "claim", "owned", "expected"), CASES)
def test_case(reading: Reading, claim: ClaimFact | None, owned: bool, expected: rule.Decision) -> None:
    """Each line of the rule decides as its table says."""
    assert decide(reading, claim, me=ME, owned=owned) == expected


def test_no_reading_runs_here_what_another_worker_holds() -> None:
    """Whatever else a request says, a session with a claim elsewhere is never run here."""
    for claim, bits in itertools.product((THEIRS, GONE), itertools.product((False, True), repeat=5)):
        vouched, starts, ends, mints, stateless = bits
        reading = Reading(session="a", vouched=vouched, starts=starts, ends=ends, mints=mints, stateless=stateless)
        decision = decide(reading, claim, me=ME, owned=False)
        assert decision == (rule.Relay(3) if claim.live else rule.REFUSE_GONE)
