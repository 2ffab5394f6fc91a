"""Plays a case against any fleet: the same script in memory and against real processes."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64decode, b64encode
from collections.abc import Awaitable
from typing import Any, Protocol

from conformance import app as gym
from conformance.cases import NOBODY, WINDOW, Ask, Case, Held, Kill, Later
from itsdangerous import TimestampSigner, URLSafeSerializer

from server_adapters.tokens import TOKEN_HEADER

TOKEN_SALT = "nemo-gym-mcp-session-token"
SLACK_SECONDS = 20.0


class Fleet(Protocol):
    """Workers of one server."""

    def ask(
        self, on: int, method: str, path: str, *, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> Awaitable[tuple[int, list[tuple[bytes, bytes]], bytes, int | None]]: ...

    def kill(self, index: int) -> Awaitable[None]: ...

    def holder(self, session: str) -> int | str | None: ...


class Player:
    """One case under way: the cookies it has kept."""

    def __init__(self, fleet: Fleet, case: Case) -> None:
        self.fleet = fleet
        self.case = case
        self.name = gym.RESOURCES if case.kind == "resources" else gym.AGENT
        self.field = "session_id" if case.kind == "resources" else "agent_session_id"
        self.jar: dict[str, str] = {}

    async def play(self) -> None:
        """Every step in order; an AssertionError names the step."""
        for number, step in enumerate(self.case.steps, 1):
            try:
                match step:
                    case Ask():
                        await self.ask(step)
                    case Kill(worker):
                        await self.fleet.kill(worker)
                    case Held(session, by):
                        await self.settled(self.id_of(session), None if by == NOBODY else by)
                    case Later(session):
                        await self.settled(self.id_of(session), None)
            except AssertionError as error:
                raise AssertionError(f"{self.case.name}: step {number}, {step}: {error}") from error

    async def settled(self, session: str, by: int | str | None) -> None:
        """Wait until the claim is as expected: a run's end is a moment after its reply."""
        end = time.monotonic() + SLACK_SECONDS + WINDOW
        while (holder := self.fleet.holder(session)) != by:
            assert time.monotonic() < end, f"held by {holder}, expected {by}"
            await asyncio.sleep(0.01)

    def id_of(self, name: str) -> str:
        """The session id of a kept cookie, or the literal id."""
        return session_in(self.jar[name], self.field) or "" if name in self.jar else name

    async def ask(self, step: Ask) -> None:
        """One request, and what is expected of its reply."""
        method, path = step.route.split()
        headers = [(name.lower().encode(), value.encode()) for name, value in step.headers.items()]
        sent = None
        if step.cookie is not None:
            sent = self.cookie(step.cookie)
            headers.append((b"cookie", f"other=1; {self.name}={sent}".encode()))
        if step.token is not None:
            token = URLSafeSerializer(self.name, salt=TOKEN_SALT).dumps({"sid": step.token, "tools": None})
            headers.append((TOKEN_HEADER, token.encode() if isinstance(token, str) else token))
        body = b"" if step.body is None else json.dumps(step.body).encode()
        if step.body is not None:
            headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        status, got, content, ran = await self.fleet.ask(step.on, method, path, headers=headers, body=body)
        assert status == step.status, f"status {status}: {content[:300]!r}"
        if step.ran is not None:
            assert ran == (None if step.ran == NOBODY else step.ran), f"ran on {ran}"
        if step.error is not None:
            reply = json.loads(content)
            assert reply["error"] == step.error, reply
            assert set(reply) == {"error", "detail", "server", "session", "worker", "incarnation", "died_at"}
        cookie = self.cookie_of(got)
        if step.leaves:
            assert cookie is None, f"cookie {cookie}"
        if step.keeps:
            assert cookie == sent
        if step.same is not None:
            assert cookie is not None
            assert session_in(cookie, self.field) == session_in(self.jar[step.same], self.field)
        if step.save is not None:
            assert cookie is not None, "no session cookie in the reply"
            self.jar[step.save] = cookie

    def cookie(self, name: str) -> str:
        """A kept cookie; `=ID` is one signed for an id of long ago, `!ID` one with a bad signature."""
        if name[0] not in "=!":
            return self.jar[name]
        secret = self.name if name[0] == "=" else "another secret"
        data = b64encode(json.dumps({self.field: name[1:]}).encode())
        return TimestampSigner(secret).sign(data).decode()

    def cookie_of(self, headers: list[tuple[bytes, bytes]]) -> str | None:
        """The value of the session cookie that a reply sets."""
        for name, value in headers:
            if name == b"set-cookie" and value.startswith(self.name.encode() + b"="):
                return value.decode().split(";")[0].split("=", 1)[1]
        return None


def session_in(cookie: str, field: str) -> Any:
    """The session id in a cookie value."""
    try:
        return json.loads(b64decode(cookie.split(".", maxsplit=1)[0])).get(field)
    except ValueError:
        return None
