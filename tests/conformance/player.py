"""Plays a case against any fleet: the same script in memory and against real processes."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from conformance import app as gym
from conformance.script import (
    NOBODY,
    WINDOW,
    Ask,
    Case,
    Held,
    HeldByOne,
    Kill,
    Later,
    Leave,
    Mark,
    NothingNew,
    Open,
    Outlives,
    PrivateSockets,
    Step,
    Together,
)
from itsdangerous import TimestampSigner, URLSafeSerializer

from server_adapters.tokens import TOKEN_HEADER

TOKEN_SALT = "nemo-gym-mcp-session-token"
SLACK_SECONDS = 20.0

Headers = list[tuple[bytes, bytes]]
Reply = tuple[int, Headers, bytes, int | None]


Note = Callable[[Case, Exception | None], None]
"""Told what became of a case."""


class Fleet(Protocol):
    """Workers of one server."""

    def ask(self, on: int, method: str, path: str, *, headers: Headers, body: bytes) -> Awaitable[Reply]:
        """One request: status, headers, body (what came of it), and the worker whose app ran it."""

    def leave(
        self, on: int, method: str, path: str, *, headers: Headers, body: bytes, in_body: bool
    ) -> Awaitable[None]:
        """A client that leaves in the middle of its body, or before the reply; returns when the worker is done."""

    def kill(self, index: int) -> Awaitable[None]:
        """A worker dies, and its siblings know."""

    def holder(self, session: str) -> int | str | None:
        """Who holds a claim: a worker's index, "gone", or None."""

    def live(self) -> set[str]:
        """The digests of all live claims."""

    def open_sessions(self, index: int) -> int:
        """How many a worker shows."""

    def private_sockets(self) -> int:
        """How many there are."""


class Player:
    """One case under way: the cookies it has kept."""

    def __init__(self, fleet: Fleet, case: Case) -> None:
        self.fleet = fleet
        self.case = case
        self.name = gym.RESOURCES if case.kind == "resources" else gym.AGENT
        self.jar: dict[str, str] = {}
        self.made: dict[str, str] = {}
        self.before: set[str] = set()

    async def play(self) -> None:
        """Every step in order; an AssertionError names the step."""
        for number, step in enumerate(self.case.steps, 1):
            try:
                await self.do(step)
            except AssertionError as error:
                raise AssertionError(f"{self.case.name}: step {number}, {step}: {error}") from error

    async def do(self, step: Step) -> None:
        """One step."""
        match step:
            case Ask():
                await self.ask(step)
            case Together(asks, one_ran):
                ran = await asyncio.gather(*(self.ask(ask) for ask in asks))
                assert not one_ran or len(set(ran)) == 1, f"ran on {ran}"
            case Leave(ask, in_body):
                method, path, headers, body = self.request(ask)
                await self.fleet.leave(ask.on, method, path, headers=headers, body=body, in_body=in_body)
            case Kill(worker):
                await self.fleet.kill(worker)
            case Held(session, by):
                await self.settled(self.id_of(session), None if by == NOBODY else by)
            case HeldByOne(session):
                assert isinstance(self.fleet.holder(self.id_of(session)), int)
            case Later(session):
                await self.settled(self.id_of(session), None)
            case Outlives(session, other):
                await self.settled(self.id_of(other), None)
                assert isinstance(self.fleet.holder(self.id_of(session)), int), "its claim has ended"
            case Open(worker, number):
                await self.counted(worker, number)
            case Mark():
                self.before = self.fleet.live()
            case NothingNew():
                await self.nothing_new()
            case PrivateSockets(number):
                assert self.fleet.private_sockets() == number

    async def settled(self, session: str, by: int | str | None) -> None:
        """Wait until the claim is as expected: a run's end is a moment after its reply."""
        end = time.monotonic() + SLACK_SECONDS + WINDOW
        while (holder := self.fleet.holder(session)) != by:
            assert time.monotonic() < end, f"held by {holder}, expected {by}"
            await asyncio.sleep(0.01)

    async def counted(self, worker: int, number: int) -> None:
        """Wait until a worker shows so many open sessions: it does a moment after its reply."""
        end = time.monotonic() + SLACK_SECONDS
        while (found := self.fleet.open_sessions(worker)) != number:
            assert time.monotonic() < end, f"{found} open sessions, expected {number}"
            await asyncio.sleep(0.01)

    async def nothing_new(self) -> None:
        """Wait until what requests in flight may have claimed is gone: at once, long before any window is over."""
        end = time.monotonic() + WINDOW / 2
        while new := self.fleet.live() - self.before:
            assert time.monotonic() < end, f"new claims: {new}"
            await asyncio.sleep(0.01)

    def id_of(self, name: str) -> str:
        """The session id of a kept cookie, or the literal id."""
        return session_in(self.jar[name], self.case.field) or "" if name in self.jar else name

    def request(self, step: Ask) -> tuple[str, str, Headers, bytes]:
        """Method, path, headers and body of a step."""
        method, path = step.route.split()
        headers: Headers = [(name.lower().encode(), value.encode()) for name, value in step.headers.items()]
        if step.raw is not None:
            values = {**self.jar, "name": self.name}
            headers.append((b"cookie", step.raw.format(**values).encode()))
        elif step.cookie is not None:
            headers.append((b"cookie", f"other=1; {self.name}={self.cookie(step.cookie, step.data)}".encode()))
        if step.token is not None:
            headers.append((TOKEN_HEADER, self.token(step)))
        body = b""
        if isinstance(step.body, bytes):
            body = step.body
        elif step.body is not None:
            content = {**step.body, "pad": "x" * step.pad} if step.pad and isinstance(step.body, dict) else step.body
            body = json.dumps(content).encode()
        if step.body is not None:
            headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        return method, path, headers, body

    async def ask(self, step: Ask) -> int | None:
        """One request, and what is expected of its reply; returns who ran it."""
        method, path, headers, body = self.request(step)
        status, got, content, ran = await self.fleet.ask(step.on, method, path, headers=headers, body=body)
        assert status == step.status, f"status {status}: {content[:300]!r}"
        if step.ran is not None:
            assert ran == (None if step.ran == NOBODY else step.ran), f"ran on {ran}"
        if step.error is not None:
            self.check_own_reply(step.error, status, got, json.loads(content))
        if step.count is not None:
            assert json.loads(content)["count"] == step.count, content
        cookie = self.cookie_of(got)
        if step.leaves:
            assert cookie is None, f"cookie {cookie}"
        if step.keeps:
            assert step.cookie is not None
            assert cookie == self.cookie(step.cookie, step.data)
        if step.same is not None:
            assert cookie is not None, "no session cookie in the reply"
            assert session_in(cookie, self.case.field) == self.id_of(step.same)
        if step.has:
            assert cookie is not None, "no session cookie in the reply"
            assert {key: session_in(cookie, key) for key in step.has} == step.has
        if step.save is not None:
            assert cookie is not None, "no session cookie in the reply"
            self.jar[step.save] = cookie
        return ran

    def check_own_reply(self, kind: str, status: int, headers: Headers, content: dict[str, Any]) -> None:
        """A reply that the router made: its fields, and that nobody keeps it."""
        assert content["error"] == kind, content
        assert set(content) == {"error", "detail", "server", "session", "worker", "incarnation", "died_at"}
        assert content["detail"]
        named = dict(headers)
        assert named[b"cache-control"] == b"no-store"
        assert (b"retry-after" in named) is (status == 503)

    def cookie(self, name: str, data: dict[str, Any]) -> str:
        """A kept cookie, or one that is made for an id."""
        if name[0] not in "=!":
            return self.jar[name]
        secret = self.name if name[0] == "=" else "another secret"
        content = b64encode(json.dumps({self.case.field: name[1:], **data}).encode())
        return self.made.setdefault(f"{name} {data}", TimestampSigner(secret).sign(content).decode())

    def token(self, step: Ask) -> bytes:
        """An MCP token as Gym signs it."""
        assert step.token is not None
        secret = "another secret" if step.token[0] == "!" else self.name
        content = {"sid": step.token.lstrip("!"), "tools": None, **step.token_data}
        token = URLSafeSerializer(secret, salt=TOKEN_SALT).dumps(content)
        return token.encode() if isinstance(token, str) else token

    def cookie_of(self, headers: Headers) -> str | None:
        """The value of the session cookie that a reply sets."""
        for name, value in headers:
            if name == b"set-cookie" and value.startswith(self.name.encode() + b"="):
                return value.decode().split(";")[0].split("=", 1)[1]
        return None


def session_in(cookie: str, field: str) -> Any:
    """The session id in a cookie value."""
    try:
        return json.loads(b64decode(cookie.strip('"').split(".", maxsplit=1)[0])).get(field)
    except ValueError:
        return None
