"""The book of a worker's own sessions: when claims end."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from server_adapters.adapter import Life
from supervisor.routing.sessions import Book, Owned

LIFE = Life(window_seconds=300, idle_seconds=600, open_idle_seconds=None)


def visited(book: Book, session: str = "a", now: float = 0.0) -> Owned:
    """A session with one request in flight."""
    own = book.add(session, object(), now)
    book.enter(own)
    return own


def test_an_open_session_keeps_its_claim() -> None:
    """A started session has no deadline, however long nobody asks for it."""
    book = Book(LIFE)
    own = visited(book)
    book.start(own, succeeded=True, now=0)
    assert not book.leave(own, 0)
    assert own.deadline is None
    assert book.due(1e9) == []


def test_an_open_session_whose_client_went_away_ends_when_asked_to() -> None:
    """`open_idle_seconds` counts from the last request."""
    book = Book(Life(open_idle_seconds=50))
    own = visited(book)
    book.start(own, succeeded=True, now=0)
    book.leave(own, 0)
    book.enter(own)
    book.leave(own, 30)
    assert book.due(79) == []
    assert book.due(80) == [own]


def test_an_ended_session_keeps_its_claim_for_the_window() -> None:
    """The window starts anew with each request after the end."""
    book = Book(LIFE)
    own = visited(book)
    book.start(own, succeeded=True, now=0)
    book.leave(own, 0)
    book.enter(own)
    book.end(own, 10)
    book.leave(own, 10)
    book.enter(own)
    book.leave(own, 100)
    assert book.due(399) == []
    assert book.due(400) == [own]


def test_a_window_that_does_not_slide() -> None:
    """Where the preset says so the window counts from the end, whatever comes after it."""
    book = Book(Life(window_seconds=300, slides=False))
    own = visited(book)
    book.close(own, 10)
    book.leave(own, 10)
    book.enter(own)
    book.leave(own, 200)
    assert book.due(309) == []
    assert book.due(310) == [own]


def test_a_failed_start_is_kept_for_the_window() -> None:
    """The caller's clean-up close must reach the worker whose start failed."""
    book = Book(LIFE)
    own = visited(book)
    book.start(own, succeeded=False, now=0)
    assert not book.leave(own, 0)
    assert own.deadline == 300
    assert book.open_sessions == 0


def test_a_failed_start_does_not_close_an_open_session() -> None:
    """A second seed that fails leaves the session as it was."""
    book = Book(LIFE)
    own = visited(book)
    book.start(own, succeeded=True, now=0)
    book.start(own, succeeded=False, now=1)
    assert own.open


def test_an_unkept_claim_goes_with_its_request() -> None:
    """A claim that no reply gave a name to is given back when its last request leaves."""
    book = Book(LIFE)
    own = visited(book)
    book.enter(own)
    assert not book.leave(own, 0)
    assert book.leave(own, 0)


def test_a_kept_claim_idles() -> None:
    """A session without a start lives `idle_seconds` after its last request."""
    book = Book(LIFE)
    own = visited(book)
    own.kept = True
    assert not book.leave(own, 5)
    assert own.deadline == 605


def test_nothing_ends_while_a_request_is_in_flight() -> None:
    """A deadline that passes during a request does not count; the next one starts at its end."""
    book = Book(LIFE)
    own = visited(book)
    own.kept = True
    book.leave(own, 0)
    book.enter(own)
    assert book.due(10_000) == []
    book.leave(own, 10_000)
    assert book.due(10_599) == []
    assert book.due(10_600) == [own]


def test_a_nearer_deadline_is_not_hidden_by_a_later_one() -> None:
    """An end after a long idle time-out was queued comes up at the window's end."""
    book = Book(Life(window_seconds=10, idle_seconds=1000))
    own = visited(book)
    own.kept = True
    book.leave(own, 0)
    book.enter(own)
    book.end(own, 1)
    book.leave(own, 1)
    assert book.due(11) == [own]
    assert book.due(2000) == []


def test_many_that_are_due_come_in_parts() -> None:
    """So that ending them leaves turns for requests; one that is asked for between two parts is not due any more."""
    book = Book(LIFE)
    owned = []
    for number in range(5):
        own = book.add(str(number), object(), 0)
        book.enter(own)
        own.kept = True
        book.leave(own, number)
        owned.append(own)
    assert book.due(604, 2) == owned[:2]
    book.enter(owned[2])
    book.leave(owned[2], 604)
    assert book.due(604, 2) == owned[3:]
    assert book.due(604, 2) == []
    assert book.due(1204, 2) == [owned[2]]


def test_what_is_not_removed_comes_again() -> None:
    """A claim that could not be given back is due again at the retry."""
    book = Book(LIFE)
    own = visited(book)
    book.end(own, 0)
    book.leave(own, 0)
    assert book.due(300) == [own]
    book.retry(own, 301)
    assert book.due(300.5) == []
    assert book.due(301) == [own]
    book.remove(own)
    assert len(book) == 0


def test_a_close_is_remembered_from_its_first() -> None:
    """A late start of a closed id is told from a new one for the window, which later closes do not prolong."""
    book = Book(LIFE)
    own = visited(book)
    book.close(own, 10)
    book.close(own, 200)
    assert book.was_closed(own, 309)
    assert not book.was_closed(own, 310)


def test_closed_ids_are_not_remembered_when_the_app_does_it() -> None:
    """`remember_closed: false` leaves late starts to the app."""
    book = Book(Life(remember_closed=False))
    own = visited(book)
    book.close(own, 10)
    assert not book.was_closed(own, 11)


def test_a_forgotten_start_leaves_nothing() -> None:
    """A start that created nothing gives its claim back as its request leaves."""
    book = Book(LIFE)
    own = visited(book)
    book.start(own, succeeded=False, now=0)
    book.forget(own)
    assert book.leave(own, 0)
    book.remove(own)
    assert (book.open_sessions, book.unstarted, len(book)) == (0, 0, 0)


def test_an_app_holds_and_releases() -> None:
    """What the app says goes before what the routes say."""
    book = Book(LIFE)
    own = visited(book)
    book.hold(own, 0)
    assert not book.leave(own, 0)
    assert own.deadline is None
    book.enter(own)
    book.release(own, 1)
    assert book.leave(own, 1)


class BookMachine(RuleBasedStateMachine):
    """Random lives of a few sessions: the counts are those of the sessions, and nothing in flight is ever due."""

    def __init__(self) -> None:
        super().__init__()
        self.book = Book(Life(window_seconds=30, idle_seconds=60, open_idle_seconds=90))
        self.now = 0.0

    names = st.sampled_from("abcd")

    @rule(name=names)
    def enter(self, name: str) -> None:
        own = self.book.get(name) or self.book.add(name, object(), self.now)
        self.book.enter(own)

    @rule(name=names, kept=st.booleans())
    def leave(self, name: str, kept: bool) -> None:
        own = self.book.get(name)
        if own is not None and own.in_flight:
            own.kept = own.kept or kept
            if self.book.leave(own, self.now):
                self.book.remove(own)

    @rule(name=names, succeeded=st.booleans())
    def start(self, name: str, succeeded: bool) -> None:
        own = self.book.get(name)
        if own is not None and own.in_flight:
            self.book.start(own, succeeded=succeeded, now=self.now)

    @rule(name=names, close=st.booleans())
    def end(self, name: str, close: bool) -> None:
        own = self.book.get(name)
        if own is not None and own.in_flight:
            (self.book.close if close else self.book.end)(own, self.now)

    @rule(seconds=st.floats(0, 100))
    def sweep(self, seconds: float) -> None:
        self.now += seconds
        for own in self.book.due(self.now):
            assert own.in_flight == 0
            assert own.deadline is not None
            assert own.deadline <= self.now
            self.book.remove(own)

    @precondition(lambda self: len(self.book) > 0 and not any(own.in_flight for own in self.book))
    @rule()
    def nothing_lives_for_ever(self) -> None:
        self.now += 1000
        for own in self.book.due(self.now):
            self.book.remove(own)
        assert len(self.book) == 0

    @invariant()
    def counts_hold(self) -> None:
        owned = list(self.book)
        assert self.book.open_sessions == sum(own.ended_at is None for own in owned)
        assert self.book.unstarted == sum(not own.started for own in owned)


TestBook = BookMachine.TestCase
TestBook.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
