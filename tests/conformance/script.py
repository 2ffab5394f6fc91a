"""What a case of the conformance suite is made of: requests to workers, deaths, and who holds which claim after them.

A case is a script. Cookies have names of the case's own: `cookie="a"` sends what `save="a"` kept; `=ID` is a cookie
signed for an id of long ago, `!ID` one with a bad signature. Workers are numbers; placement is `accepting` unless a
case says otherwise, so a new session belongs to the worker that it landed on. The window is `WINDOW` seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

WINDOW = 2.0
NOBODY = -1


@dataclass(frozen=True)
class Ask:
    """One request to worker `on`.

    route      method and path; WEBSOCKET: opened, its first message taken for a body. Accepted, its status is 101
    raw        a whole Cookie header instead of `cookie`; `{a}` is the value of cookie a, `{name}` the server's cookie
    data       what else the data of an `=ID` or `!ID` cookie holds
    pad        bytes that are added to the body's JSON
    token      an MCP token for this id; `!ID`: with a bad signature; `token_data` is what else it holds
    ran        the worker whose app ran it; NOBODY: none did
    status     of the reply; error: its `error`
    save       keep the reply's session cookie under this name; it must have one
    keeps      the reply repeats the cookie that was sent
    leaves     the reply has no session cookie at all
    same       the reply's cookie names the session of this cookie, or this id
    has        what else the data of the reply's cookie holds
    count      how often the session has been asked for, as the app that ran this has it
    """

    on: int
    route: str
    cookie: str | None = None
    raw: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    body: dict[str, Any] | list[Any] | bytes | None = None
    pad: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    token: str | None = None
    token_data: dict[str, Any] = field(default_factory=dict)
    ran: int | None = None
    status: int = 200
    error: str | None = None
    save: str | None = None
    keeps: bool = False
    leaves: bool = False
    same: str | None = None
    has: dict[str, Any] = field(default_factory=dict)
    count: int | None = None


@dataclass(frozen=True)
class Together:
    """Several requests at once, each to another worker; with `one_ran`, one worker ran them all."""

    asks: list[Ask]
    one_ran: bool = True


@dataclass(frozen=True)
class Leave:
    """A client that goes away: in the middle of its body, or before the reply to a request that it has sent whole."""

    ask: Ask
    in_body: bool


@dataclass(frozen=True)
class Kill:
    """Worker `worker` dies; it is not replaced before its siblings are asked."""

    worker: int


@dataclass(frozen=True)
class Held:
    """Who holds the claim of a cookie's or a literal id: a worker, NOBODY, or "gone"."""

    session: str
    by: int | str


@dataclass(frozen=True)
class HeldByOne:
    """Some worker holds the claim of this id."""

    session: str


@dataclass(frozen=True)
class Later:
    """Wait until a claim is held by nobody: it must end by itself, within the window and a sweep."""

    session: str


@dataclass(frozen=True)
class Outlives:
    """The claim of one session is still held when that of another, which ended later, is gone."""

    session: str
    other: str


@dataclass(frozen=True)
class Open:
    """Wait until a worker shows so many sessions that have not ended."""

    worker: int
    number: int


@dataclass(frozen=True)
class Mark:
    """Remember which claims there are."""


@dataclass(frozen=True)
class NothingNew:
    """No claim is there that was not there at the Mark."""


@dataclass(frozen=True)
class PrivateSockets:
    """How many private sockets there are."""

    number: int


Step = Ask | Together | Leave | Kill | Held | HeldByOne | Later | Outlives | Open | Mark | NothingNew | PrivateSockets


@dataclass(frozen=True)
class Case:
    """A script, and the server it is for.

    name    says what holds; `line` is the part of the contract that it belongs to
    kind    of server: resources or agent
    """

    line: str
    name: str
    steps: list[Step]
    kind: str = "resources"
    workers: int = 3
    affinity: dict[str, Any] = field(default_factory=dict)
    max_sessions: int = 1000
    placement: str = "accepting"
    root_path: str = ""

    @property
    def field(self) -> str:
        """The id's key in the session cookie."""
        default = "session_id" if self.kind == "resources" else "agent_session_id"
        return str(self.affinity.get("field", default))


SEED = "POST /seed_session"
CLOSE = "POST /close_session"
VERIFY = "POST /verify"
TOOL = "POST /increment_counter"
T = "resources_session_id"
AGENTS = "POST /v1/agent_sessions"
AGENT_CLOSE = "POST /v1/agent_sessions/close"
RUN = "POST /run"
A = "agent_session_id"
