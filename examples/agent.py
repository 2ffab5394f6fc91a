"""An agent server that plays the typed counter, with a model that follows a script.

    POST /v1/agent_sessions        {"agent_session_id": id, "start": n, "target": m}  -> {}
    POST /v1/responses             {}  -> {"call": {...} or null}     one turn: the model's call, carried out
    POST /run                      {}  -> {"turns": n, "reward": 1.0} all turns, and the verify at their end
    POST /v1/agent_sessions/close  {"agent_session_id": id}  -> {"turns": n}

An agent session is the transcript so far and the cookies of the episode's session on the resources server, whose
address is in RESOURCES_URL. Those cookies are the last reply's and no others, as Gym's agents forward them.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples.counter import SessionIds

SESSION_NAME = "ScriptedAgent___agent"
FIELD = "agent_session_id"
CLOSE_FOLLOWS = {"x-ng-checkpoint-close-follows": "1"}


class ResourcesError(Exception):
    """The resources server said no."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Resources:
    """One episode's session on the resources server."""

    def __init__(self, client: aiohttp.ClientSession) -> None:
        self.id = str(uuid.uuid4())
        self._client = client
        self._cookies: Mapping[str, Any] = {}

    async def post(self, path: str, content: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Any:
        """The JSON reply to a POST."""
        url = os.environ.get("RESOURCES_URL", "http://127.0.0.1:8000") + path
        async with self._client.post(url, json=content, cookies=self._cookies, headers=headers) as reply:
            self._cookies = reply.cookies
            if reply.status != 200:
                raise ResourcesError(reply.status, await reply.text())
            return await reply.json()


def scripted_model(count: int, target: int) -> dict[str, Any] | None:
    """The next tool call, from what the model has seen last; None: it is done."""
    if count == target:
        return None
    step = max(-3, min(3, target - count))
    return {"name": "increment_counter", "arguments": {"count": step}}


class Episode:
    """One agent session: what the model has done so far."""

    def __init__(self, resources: Resources, start: int, target: int) -> None:
        self.resources = resources
        self.start = start
        self.target = target
        self.transcript: list[dict[str, Any]] = []

    async def turn(self) -> dict[str, Any] | None:
        """One call of the model's, carried out."""
        seen = (await self.resources.post("/get_counter_value", {}))["count"]
        call = scripted_model(seen, self.target)
        if call is not None:
            await self.resources.post(f"/{call['name']}", call["arguments"])
            self.transcript.append(call)
        return call

    async def run(self) -> float:
        """All turns; the reward."""
        while await self.turn() is not None:
            pass
        content = {"expected_count": self.target, "transcript": self.transcript}
        return float((await self.resources.post("/verify", content, CLOSE_FOLLOWS))["reward"])


episodes: dict[str, Episode] = {}


def episode_of(request: Request) -> Episode:
    """The agent session that the request's cookie names."""
    return episodes[request.session[FIELD]]


async def seed(request: Request) -> Response:
    """Start an agent session, and its episode on the resources server."""
    body = await request.json()
    session = body[FIELD]
    resources = Resources(request.state.client)
    await resources.post("/seed_session", {"resources_session_id": resources.id, "initial_count": body["start"]})
    episodes[session] = Episode(resources, body["start"], body["target"])
    request.session[FIELD] = session
    return JSONResponse({})


async def responses(request: Request) -> Response:
    """One turn."""
    return JSONResponse({"call": await episode_of(request).turn()})


async def run(request: Request) -> Response:
    """The whole episode."""
    episode = episode_of(request)
    reward = await episode.run()
    return JSONResponse({"turns": len(episode.transcript), "reward": reward})


async def close(request: Request) -> Response:
    """End an agent session, and its episode; a repeated close finds nothing to end."""
    episode = episodes.pop((await request.json())[FIELD], None)
    if episode is None:
        return JSONResponse({"turns": None})
    await episode.resources.post("/close_session", {"resources_session_id": episode.resources.id})
    return JSONResponse({"turns": len(episode.transcript)})


async def alive(_request: Request) -> Response:
    """Answer whoever asks whether the server is up."""
    return JSONResponse({"status": "ok"})


async def unknown(_request: Request, error: Exception) -> Response:
    """A request for an agent session that this process does not have."""
    return JSONResponse({"detail": f"no agent session: {error}"}, status_code=404)


async def refused(_request: Request, error: Exception) -> Response:
    """The resources server's no is passed on."""
    assert isinstance(error, ResourcesError)
    return JSONResponse({"detail": f"resources server: {error}"}, status_code=error.status)


@contextlib.asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[dict[str, Any]]:
    """One client for all episodes of this worker, without a cookie jar of its own."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as client:
        yield {"client": client}


app = Starlette(
    routes=[
        Route("/v1/agent_sessions", seed, methods=["POST"]),
        Route("/v1/agent_sessions/close", close, methods=["POST"]),
        Route("/v1/responses", responses, methods=["POST"]),
        Route("/run", run, methods=["POST"]),
        Route("/", alive, methods=["GET"]),
    ],
    middleware=[
        Middleware(SessionMiddleware, secret_key=SESSION_NAME, session_cookie=SESSION_NAME),
        Middleware(SessionIds),
    ],
    exception_handlers={KeyError: unknown, ResourcesError: refused},
    lifespan=lifespan,
)
