"""Releases in the supervisor, with real tables and no worker: who is asked, what is said, and what never blocks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from shmclaims import check
from supervisor.config.models import ServerConfig
from supervisor.core.events import Worker
from supervisor.core.messages import Release, Released, ToWorker
from supervisor.releases import ANSWER_SECONDS, Releases
from supervisor.segments import Segments

SERVER = ServerConfig.model_validate({"app": "m:app", "claims": {"max_sessions": 96}}, context={"folder": "/"})


class Desk:
    """Two servers' tables, the releases of their sessions, and what was said to whom. Time is the test's."""

    def __init__(self) -> None:
        self.segments = Segments()
        for name in ("a", "b"):
            self.segments.create(name, SERVER, {})
        self.sent: list[tuple[Worker, Release]] = []
        self.reads = True
        self.releases = Releases(self.segments, self._send)
        self.answers: list[Mapping[str, Any]] = []

    def _send(self, worker: Worker, message: ToWorker) -> bool:
        assert isinstance(message, Release)
        self.sent.append((worker, message))
        return self.reads

    def claim(self, server: str, session: str) -> Worker:
        """Have a new worker claim a session."""
        worker = self.segments.register(server, 0)
        table = self.segments.segment(server).table
        table.bind(worker.incarnation, 0)
        table.claim(session.encode(), now=time.time())
        return worker

    def ask(self, session: str, now: float = 0.0, **more: Any) -> Mapping[str, Any] | None:
        """Ask for a release; what was answered at once, or by now."""
        said = self.releases.ask({"session": session, **more}, self.answers.append, now)
        assert said is None or not self.answers
        return said or (self.answers[-1] if self.answers else None)


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A desk whose tables are sound at the end."""
    desk = Desk()
    try:
        yield desk
        for name in ("a", "b"):
            assert check(desk.segments.segment(name)) == []
    finally:
        desk.segments.close()


def test_the_owner_is_asked_for_exactly_its_claim(desk: Desk) -> None:
    """By slot and control word; its answer is the reply, and only its own counts."""
    worker = desk.claim("b", "session-1")
    assert desk.ask("session-1", when_idle=True) is None
    ((asked, order),) = desk.sent
    found = desk.segments.segment("b").table.find(desk.segments.segment("b").table.digest(b"session-1"))
    assert found is not None
    assert (asked, order.slot, order.control, order.when_idle) == (worker, found[0].slot, found[0].control, True)
    desk.releases.answered(Worker("a", 0, worker.incarnation), Released(order.ticket, "released"))
    desk.releases.answered(worker, Released(order.ticket + 1, "released"))
    assert desk.answers == []
    desk.releases.answered(worker, Released(order.ticket, "released"))
    assert desk.answers[0]["ok"] is True
    assert (desk.answers[0]["server"], desk.answers[0]["session"], desk.answers[0]["worker"]) == ("b", "sess", 0)
    assert desk.releases.next_timer() is None


def test_one_id_on_two_servers_is_not_guessed(desk: Desk) -> None:
    """Both are named; with the server said it goes on."""
    desk.claim("a", "session-1")
    desk.claim("b", "session-1")
    said = desk.ask("session-1")
    assert said is not None
    assert (said["kind"], desk.sent) == ("ambiguous", [])
    assert "a, b" in said["error"]
    assert desk.ask("session-1", server="a") is None
    assert [worker.server for worker, _ in desk.sent] == ["a"]


def test_a_worker_that_does_not_answer_is_given_up(desk: Desk) -> None:
    """After a while, and its late answer changes nothing."""
    worker = desk.claim("a", "session-1")
    desk.ask("session-1", now=100.0)
    assert desk.releases.next_timer() == 100.0 + ANSWER_SECONDS
    desk.releases.step(100.0 + ANSWER_SECONDS - 0.1)
    assert desk.answers == []
    desk.releases.step(100.0 + ANSWER_SECONDS)
    assert desk.answers[0]["kind"] == "unanswered"
    assert "worker 0 did not answer within 5 s" in desk.answers[0]["error"]
    desk.releases.answered(worker, Released(desk.sent[0][1].ticket, "released"))
    assert len(desk.answers) == 1


def test_a_worker_that_cannot_be_told_is_said_to_be(desk: Desk) -> None:
    """Its link is full or closed."""
    desk.claim("a", "session-1")
    desk.reads = False
    said = desk.ask("session-1")
    assert said is not None
    assert said["kind"] == "unanswered"


def test_an_owner_that_dies_leaves_a_record_to_retire(desk: Desk) -> None:
    """The question goes on without it."""
    worker = desk.claim("a", "session-1")
    assert desk.ask("session-1") is None
    desk.segments.mark_gone(worker, -9)
    desk.releases.lost(worker)
    assert desk.releases.next_timer() == 0.0
    desk.releases.step(0.0)
    assert desk.answers[0]["outcome"] == "retired"
    assert desk.segments.segment("a").table.count()[:2] == (0, 0)


def test_a_busy_stripe_is_waited_for_but_not_for_ever(desk: Desk) -> None:
    """Tried again and again, with pauses; then the answer is that it was busy."""
    worker = desk.claim("a", "session-1")
    desk.segments.mark_gone(worker)
    semaphore = desk.segments.segment("a").stripes.semaphores[0]
    semaphore.acquire(0)
    assert desk.ask("session-1", now=0.0) is None
    due = desk.releases.next_timer()
    assert due is not None
    assert 0.0 < due < 0.1
    desk.releases.step(due)
    semaphore.release()
    desk.releases.step(due)
    assert desk.answers == []
    desk.releases.step(due + 1.0)
    assert desk.answers[0]["outcome"] == "retired"

    worker = desk.claim("a", "session-2")
    desk.segments.mark_gone(worker)
    semaphore.acquire(0)
    desk.ask("session-2", now=0.0)
    desk.releases.step(ANSWER_SECONDS)
    semaphore.release()
    assert (desk.answers[1]["ok"], desk.answers[1]["kind"]) == (False, "unanswered")
    assert "stripe" in desk.answers[1]["error"]


@pytest.mark.parametrize("session", [None, "", 7, [], "\ud800", " " * 32, "0" * 32, "Z" * 32, "x" * 60_000])
def test_what_is_no_session_harms_nobody(desk: Desk, session: Any) -> None:
    """Wrong types, odd texts, texts that only look like digests."""
    said = desk.ask(session)
    assert said is not None
    assert said["ok"] is False
    assert desk.sent == []


def test_what_an_owner_says_is_told(desk: Desk) -> None:
    """Each of its outcomes has words of its own."""
    worker = desk.claim("a", "session-1")
    words = {
        Released(1, "in_flight", 2): "2 requests of it in flight",
        Released(2, "ending", 1): "with the last of 1 request in flight",
        Released(3, "ending"): "within moments",
        Released(4, "busy"): "its stripe of the table is busy",
        Released(5, "unknown"): "is another by now",
    }
    for message, text in words.items():
        assert desk.ask("session-1", when_idle=True) is None
        desk.releases.answered(worker, message)
        answer = desk.answers.pop()
        assert text in str(answer), answer
        assert answer["ok"] is (message.outcome == "ending")
