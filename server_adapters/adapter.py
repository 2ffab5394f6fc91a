"""The Adapter protocol: where one kind of server keeps its session id, and what its clients need to hear.

An adapter is pure: it reads heads and bodies and answers with what it saw. It decides nothing about workers, holds no
claim and does no I/O; `supervisor.routing.rule` decides, from a `Reading`, what becomes of a request.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from server_adapters.finders import Finder
from server_adapters.heads import Header, RequestHead, ResponseHead

ReplyKind = Literal[
    "session_gone",
    "session_conflict",
    "session_closed",
    "table_full",
    "claim_timeout",
    "overloaded",
    "owner_unreachable",
]

STATUS_OF: Mapping[ReplyKind, int] = {
    "session_gone": 410,
    "session_conflict": 409,
    "session_closed": 409,
    "table_full": 503,
    "claim_timeout": 503,
    "overloaded": 503,
    "owner_unreachable": 502,
}

RETRY_AFTER_SECONDS = 1


class Reading(msgspec.Struct, frozen=True, gc=False):
    """What an adapter saw in a request's head, and in its body where the id is there.

    session            the id that the request names, or None
    vouched            a valid signature (or the config) vouches for it: unclaimed, it is claimed before the app runs
    typed              the id stood in the body: its close is remembered (`Life.remember_closed`)
    starts             the request starts a session
    ends               the request ends its session, whatever its status
    stays_open         the request would end its session, but says that a close follows; `ends` is False then
    replaces_gone      a start whose client makes the ids: it may take the place of a gone record of the same id
    mints              the app gets the headers of `mint`: with a new id of the router's where `session` is None, else
                       with `session`, which the request names where the app does not look
    stateless          the route keeps no state: nothing is claimed for it, and its reply names no session that nobody
                       holds; an id that it carries and somebody holds still leads to the owner
    lasts              the session lives as long as such a request: it is open from its claim on, and has ended when
                       the last of them is over
    judged             the app refuses an id that it does not know: where the id's worker is gone, the request runs as
                       one that names no session
    drops              a start that need not know the id: where nobody holds it, the request goes without these headers
    reply_to           the id by which the client matches a reply to its request, as JSON; empty where it has none
    last_words         the owner's death in the middle of the reply can be told in it: `last_words` says how
    needs_body         the id is in the body: read it whole and call `read_body`
    wants_reply_body   whether the session ends stands in the reply's body: call `read_reply_body` at its end
    conflict           names of sources that name different sessions; empty when they agree
    """

    session: str | None = None
    vouched: bool = False
    typed: bool = False
    starts: bool = False
    ends: bool = False
    stays_open: bool = False
    replaces_gone: bool = False
    mints: bool = False
    stateless: bool = False
    lasts: bool = False
    judged: bool = False
    drops: tuple[bytes, ...] = ()
    reply_to: bytes = b""
    last_words: bool = False
    needs_body: bool = False
    wants_reply_body: bool = False
    conflict: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether such a request makes and ends nothing: all that may be in it is the name of a session."""
        return not (
            self.starts
            or self.ends
            or self.mints
            or self.lasts
            or self.wants_reply_body
            or self.stays_open
            or self.needs_body
            or self.last_words
            or self.conflict
        )


class ReplyReading(msgspec.Struct, frozen=True, gc=False):
    """What an adapter saw in a reply's head.

    issued   the session id that the reply gives to the client, or None when it names none
    expired  the reply takes the session's name from the client (an expired or cleared cookie)
    headers  the headers to send in place of the app's; None: send them as they are
    nothing  no handler saw the request: a session made for it is none, though it was to start one
    finder   the reply's body may give out an id: it is fed every piece before that leaves; None: nothing to look for
    """

    issued: str | None = None
    expired: bool = False
    headers: Sequence[Header] | None = None
    nothing: bool = False
    finder: Finder | None = None


class OwnReply(msgspec.Struct, frozen=True, gc=False):
    """A complete reply made by gym-supervise itself."""

    status: int
    headers: Sequence[Header]
    body: bytes


class Life(msgspec.Struct, frozen=True, gc=False):
    """How long a claim lives. Durations are seconds.

    explicit           sessions have starts and ends: an open one is kept until its end
    window_seconds     how long an ended session (and one whose start failed) keeps its claim after its last request
    idle_seconds       the same for a session that was never started; for a preset without starts that is every session
    open_idle_seconds  an open session without requests for so long ends; None: never
    remember_closed    a typed start of an id that was closed within the window is refused (session_closed)
    slides             a request for an ended session starts its window again; False: it runs from the end's reply
    rolls_back         a typed start answered with 4xx created nothing: its claim goes at once, if this request made it
                       and no other request for the id is in flight or has succeeded
    kept_by_reply      an id that nobody claimed stays claimed only when a reply carries it (for servers that sign it
                       anew in each reply); False: unless a reply takes it away
    """

    explicit: bool = True
    window_seconds: float = 300.0
    idle_seconds: float = 300.0
    open_idle_seconds: float | None = None
    remember_closed: bool = True
    slides: bool = True
    rolls_back: bool = False
    kept_by_reply: bool = False


class Adapter(Protocol):
    """One kind of server. Implementations are stateless but for bounded caches."""

    @property
    def name(self) -> str:
        """The preset's name."""

    @property
    def life(self) -> Life:
        """How long claims live."""

    @property
    def has_sessions(self) -> bool:
        """False for servers without per-session state: every request runs where it lands."""

    def read(self, head: RequestHead, /) -> Reading:
        """Find the session in a request's head."""

    def read_body(self, head: RequestHead, reading: Reading, body: bytes, /) -> Reading:
        """Find the session in the whole body; called when `reading.needs_body`."""

    def mint(self, head: RequestHead, session: str, /) -> Sequence[Header]:
        """The request's headers with `session` put in, so that the app takes it over.

        Called when `reading.mints`. What else its session cookie holds is kept, unless it is another session's.
        """

    def reply(self, head: RequestHead, reading: Reading, session: str | None, reply: ResponseHead, /) -> ReplyReading:
        """Read a reply's head.

        `session` is the id that the request ran under (a minted one included), or None when nothing is claimed for it:
        then the reply's own session cookie is taken out where the preset says so.
        """

    def read_reply_body(self, head: RequestHead, reading: Reading, reply: ResponseHead, body: bytes, /) -> bool:
        """Whether a reply ends the request's session; called with its whole body when `reading.wants_reply_body`."""

    def own_reply(self, kind: ReplyKind, head: RequestHead, reading: Reading, facts: Mapping[str, Any], /) -> OwnReply:
        """The reply of `kind` as this server's clients understand it; `facts` has the JSON fields of design.md."""

    def frames(self, head: RequestHead, reading: Reading, /) -> Finder | None:
        """What to look for in the frames that the app sends to a WebSocket; None: it gives out no id."""

    @property
    def names_files(self) -> bool:
        """Whether frames name things beside the session that lie in the memory of the worker: see `files`."""

    def files(self, frame: bytes, /) -> Iterable[str]:
        """Ids of things that a frame names: they lead to this worker for as long as its WebSocket is open."""

    def last_words(
        self, head: RequestHead, reading: Reading, reply: ResponseHead, facts: Mapping[str, Any], /
    ) -> bytes | None:
        """The end of a reply whose owner died after its head, so that the client understands it.

        Called when `reading.last_words`. None: only a broken connection tells.
        """


class Plain:
    """What most adapters answer to the questions that only some kinds of server raise."""

    has_sessions = True
    names_files = False

    def read_body(self, _head: RequestHead, reading: Reading, _body: bytes, /) -> Reading:
        """No id is in a body."""
        return reading

    def mint(self, head: RequestHead, _session: str, /) -> Sequence[Header]:
        """The app makes its ids: the headers as they are."""
        return head.headers

    def read_reply_body(self, _head: RequestHead, _reading: Reading, _reply: ResponseHead, _body: bytes, /) -> bool:
        """No reply's body ends a session."""
        return False

    def frames(self, _head: RequestHead, _reading: Reading, /) -> Finder | None:
        """No frame gives out an id."""
        return None

    def files(self, _frame: bytes, /) -> Iterable[str]:
        """Frames name nothing else."""
        return ()

    def last_words(
        self, _head: RequestHead, _reading: Reading, _reply: ResponseHead, _facts: Mapping[str, Any], /
    ) -> bytes | None:
        """The connection breaks off."""
        return None


FACTS = ("server", "session", "worker", "incarnation", "died_at")


def json_reply(
    kind: ReplyKind, facts: Mapping[str, Any], *, status: int | None = None, headers: Sequence[Header] = ()
) -> OwnReply:
    """The default own reply: JSON with `error`, `detail` and every fact, unknown ones null; never cached."""
    content = {"error": kind, "detail": facts.get("detail", "")} | {name: facts.get(name) for name in FACTS}
    body = json.dumps(content).encode()
    head: list[Header] = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
    ]
    code = STATUS_OF[kind] if status is None else status
    if STATUS_OF[kind] == 503:
        head.append((b"retry-after", b"%d" % RETRY_AFTER_SECONDS))
    return OwnReply(code, (*head, *headers), body)
