"""What to do with one request: the session rule as a pure function of what is known about its session.

The router collects the facts (the adapter's reading, whether this worker owns the session, the claim that another
worker has on it) and does what the decision says. Nothing here waits, reads shared memory or knows a socket, so that
every line of the rule is a row in a table of cases.

    facts                                             decision
    sources name different sessions                   Refuse(session_conflict)
    no id, the router may make one                    Place(mint=True)
    no id, a session starts                           Place()
    no id                                             Run
    this worker owns it                               RunOwned
    another live worker owns it                       Relay(its incarnation)
    its worker is gone, the app judges, a start       Place(claim=False)
    its worker is gone, the app judges ids itself     Run
    its worker is gone, a start may replace it        Place()
    its worker is gone                                Refuse(session_gone)
    nobody claims it, the route keeps no state        Run
    nobody claims it, vouched for, a session starts   Place()
    nobody claims it, unknown, a session starts       Place(claim=False)
    nobody claims it, the id is vouched for           ClaimAndRun
    nobody claims it, nobody vouches for it           Run
"""

from __future__ import annotations

import msgspec

from server_adapters.adapter import Reading, ReplyKind


class ClaimFact(msgspec.Struct, frozen=True, gc=False):
    """What the table says of a session: the incarnation that claimed it, and whether that worker is live."""

    incarnation: int
    live: bool


class Run(msgspec.Struct, frozen=True, gc=False):
    """Run the app here; there is no session to hold."""


class RunOwned(msgspec.Struct, frozen=True, gc=False):
    """Run the app here; this worker holds the session's claim."""


class ClaimAndRun(msgspec.Struct, frozen=True, gc=False):
    """Claim the session for this worker, then run the app here; whoever claimed it first wins."""


class Place(msgspec.Struct, frozen=True, gc=False):
    """Give a new session to the worker with the most room; that worker claims it before its app runs.

    mint   the id is the router's to make
    claim  False: the id that the request names means nothing here; the app's reply gives out the session's own
    """

    mint: bool = False
    claim: bool = True


class Relay(msgspec.Struct, frozen=True, gc=False):
    """Send the request to the owner, named by its incarnation."""

    owner: int


class Refuse(msgspec.Struct, frozen=True, gc=False):
    """Answer without the app."""

    kind: ReplyKind


Decision = Run | RunOwned | ClaimAndRun | Place | Relay | Refuse

RUN = Run()
RUN_OWNED = RunOwned()
CLAIM_AND_RUN = ClaimAndRun()
PLACE = Place()
PLACE_UNCLAIMED = Place(claim=False)
PLACE_MINTED = Place(mint=True)
REFUSE_GONE = Refuse("session_gone")
REFUSE_CONFLICT = Refuse("session_conflict")


def decide(reading: Reading, claim: ClaimFact | None, *, me: int, owned: bool) -> Decision:
    """Decide what becomes of a request.

    `claim` is what the table says of `reading.session`, None when nobody claims it; `me` is this worker's incarnation;
    `owned` says that this worker's own book has the session.
    """
    if reading.conflict:
        return REFUSE_CONFLICT
    if reading.session is None:
        if reading.mints:
            return PLACE_MINTED
        return PLACE if reading.starts else RUN
    if owned:
        return RUN_OWNED
    if claim is not None:
        if claim.live:
            # A claim of this worker's own that its book lacks is one that just ends: claim it anew.
            return CLAIM_AND_RUN if claim.incarnation == me else Relay(claim.incarnation)
        if reading.judged:
            return PLACE_UNCLAIMED if reading.starts else RUN
        return PLACE if reading.starts and reading.replaces_gone else REFUSE_GONE
    if reading.stateless:
        return RUN
    if reading.starts:
        return PLACE if reading.vouched or reading.replaces_gone else PLACE_UNCLAIMED
    return CLAIM_AND_RUN if reading.vouched else RUN
