"""What an app says about its session's claim itself: during a request, and later."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from server_adapters.adapter import Life
from supervisor.routing.extension import SessionExtension
from supervisor.routing.sessions import Owned
from supervisor.routing.solo import SoloClaims

LIFE = Life(window_seconds=30, idle_seconds=60, kept_by_reply=True)


class Row:
    """A worker's counters, written and never read."""

    def set(self, name: str, value: int) -> None:
        """Write one."""


class Session:
    """A session, and requests for it one after the other."""

    def __init__(self) -> None:
        self.claims = SoloClaims(Row(), LIFE)  # type: ignore[arg-type]
        self.own = asyncio.run(self.claims.take("a"))

    @property
    def held(self) -> bool:
        """Whether the claim is there."""
        return self.claims.book.get("a") is self.own

    def request(self, *words: str, kept: bool = True) -> SessionExtension:
        """One request in which the app says `words`; whether the route keeps the claim."""
        said = SessionExtension(self.claims, self.own)
        self.claims.book.enter(self.own)
        for word in words:
            getattr(said, word)()
        self.own.kept = kept
        self.leave(said, self.own)
        return said

    def leave(self, said: SessionExtension, own: Owned) -> None:
        """The request is over."""
        said.finish(own, 0.0)
        if self.claims.book.leave(own, 0.0):
            self.claims.give_back(own)


def test_hold_keeps_the_claim() -> None:
    """However long nobody asks, and though the route alone would not have kept it at all."""
    session = Session()
    session.request("hold", kept=False)
    assert session.held
    assert session.own.open
    assert session.claims.book.due(1e9) == []


def test_release_ends_it_with_the_request() -> None:
    """Without a window."""
    session = Session()
    session.request("release")
    assert not session.held


def test_close_ends_it_with_the_window() -> None:
    """And a late typed start can be told from a new one."""
    session = Session()
    session.request("close")
    assert session.held
    assert session.claims.book.was_closed(session.own, 29)
    assert session.claims.book.due(29) == []
    assert session.claims.book.due(30) == [session.own]


def test_the_last_word_counts() -> None:
    """An app may change its mind during the request."""
    session = Session()
    session.request("release", "close", "hold")
    assert session.own.open
    session.request("hold", "release")
    assert not session.held


def test_release_waits_for_the_other_requests() -> None:
    """The claim ends with the last one, unless one of those holds it again."""
    session = Session()
    book = session.claims.book
    for word, held in (("", False), ("hold", True)):
        session = Session()
        book = session.claims.book
        book.enter(session.own)
        session.request("release")
        assert session.held
        other = SessionExtension(session.claims, session.own)
        if word:
            getattr(other, word)()
        session.leave(other, session.own)
        assert session.held is held


def test_a_session_that_starts_again_after_a_release_is_kept() -> None:
    """A start that succeeds while the released session's last request runs opens it."""
    session = Session()
    book = session.claims.book
    book.enter(session.own)
    session.request("release")
    book.start(session.own, succeeded=True, now=0.0)
    assert not book.leave(session.own, 0.0)
    assert session.own.open


@pytest.mark.parametrize(("word", "held"), [("release", False), ("close", True), ("hold", True)])
def test_what_is_said_after_the_request_takes_effect_at_once(word: str, held: bool) -> None:
    """An app may keep the object, such as for the moment when a session's child process has exited."""
    session = Session()
    said = session.request("hold")
    getattr(said, word)()
    assert session.held is held
    assert session.own.open is (word == "hold")


def test_nothing_is_said_of_a_claim_that_has_ended() -> None:
    """The id may be another worker's by now, or a new session's here."""
    session = Session()
    said = session.request("release")
    successor = asyncio.run(session.claims.take("a"))
    said.hold()
    said.close()
    said.release()
    assert session.claims.book.get("a") is successor
    assert (successor.open, successor.ended_at, successor.released) == (False, None, False)


def test_on_end_is_called_once_when_the_claim_ends() -> None:
    """Also for what was asked for after the request; and at once when the claim has ended already."""
    session = Session()
    seen: list[str] = []
    said = SessionExtension(session.claims, session.own)
    session.claims.book.enter(session.own)
    said.on_end(lambda: seen.append("during"))
    said.hold()
    session.leave(said, session.own)

    def after() -> None:
        seen.append("after")

    said.on_end(after)
    said.on_end(after)
    assert seen == []
    said.release()
    assert seen == ["during", "after"]
    said.on_end(lambda: seen.append("too late"))
    assert seen == ["during", "after", "too late"]


def test_what_on_end_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The claim ends all the same, and the other callbacks are called."""
    session = Session()
    seen: list[str] = []

    def fails() -> None:
        raise ValueError("the app's own")

    said = SessionExtension(session.claims, session.own)
    session.claims.book.enter(session.own)
    said.on_end(fails)
    said.on_end(lambda: seen.append("called"))
    said.release()
    with caplog.at_level(logging.ERROR):
        session.leave(said, session.own)
    assert not session.held
    assert seen == ["called"]
    assert "the app's own" in caplog.text


def test_a_request_whose_session_comes_with_its_reply() -> None:
    """Such as a login: there is no session to speak of, but what is said holds for the one that the reply gives out."""
    session = Session()
    seen: list[str] = []
    said = SessionExtension(session.claims, None)
    assert said.session is None
    said.hold()
    said.on_end(lambda: seen.append("ended"))
    session.claims.book.enter(session.own)
    session.leave(said, session.own)
    assert said.session == "a"
    assert session.own.open
    said.release()
    assert seen == ["ended"]


def test_a_request_without_a_session() -> None:
    """What it says has no effect; nothing is kept for it."""
    session = Session()
    said = SessionExtension(session.claims, None)
    seen: list[Any] = []
    said.close()
    said.on_end(lambda: seen.append(1))
    said.finish(None, 0.0)
    said.hold()
    said.on_end(lambda: seen.append(2))
    assert seen == [2]
