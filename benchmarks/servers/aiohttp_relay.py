"""The reference: a relay as one would write it in an afternoon, in each of uvicorn's own workers.

A claim is a file named by the session, made with a hard link and read for every request; what another worker owns goes
there through an aiohttp client and a second uvicorn server on the owner's Unix socket. It knows no deaths.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import uvicorn

from benchmarks.servers import COOKIE, SECRET, gym
from benchmarks.servers.plain import plain
from benchmarks.servers.variant import KEEP_ALIVE_SECONDS, Variant
from server_adapters.session_cookie import CookieSettings, SessionCookie

NAME = "aiohttp-relay"
FOLDER = "BENCHMARK_RELAY_FOLDER"
HOP_BY_HOP = {b"connection", b"transfer-encoding", b"keep-alive"}
SKIPPED = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")

_me = str(os.getpid())
_cookie = SessionCookie(CookieSettings(COOKIE, SECRET), field="session_id")


def aiohttp_relay(folder: Path, *, workers: int) -> Variant:
    """Serve the FastAPI app through it."""
    (folder / "claims").mkdir()
    return plain(folder, "aiohttp_relay", workers=workers, name=NAME, env={FOLDER: str(folder)})


class _Inner(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Relay:
    """The app around the app."""

    def __init__(self, inner: Any, folder: Path) -> None:
        self._app = inner
        self._folder = folder
        self._peers: dict[str, aiohttp.ClientSession] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Run here, or there."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        session = None
        for name, value in scope["headers"]:
            if name == b"cookie":
                session = _cookie.session(value)
        if session is None:
            await self._app(scope, receive, self._claiming(send))
            return
        owner = self._owner(session) or self._claim(session)
        if owner == _me:
            await self._app(scope, receive, send)
        else:
            await self._forward(owner, scope, receive, send)

    def _claiming(self, send: Any) -> Any:
        async def claim_first(message: Any) -> None:
            if message["type"] == "http.response.start":
                found = _cookie.read_reply(message["headers"])
                if found is not None and found.session is not None:
                    self._claim(found.session)
            await send(message)

        return claim_first

    def _owner(self, session: str) -> str | None:
        try:
            file = os.open(self._folder / "claims" / session, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            return os.read(file, 32).decode()
        finally:
            os.close(file)

    def _claim(self, session: str) -> str:
        draft = self._folder / f"draft.{_me}"
        draft.write_text(_me)
        try:
            os.link(draft, self._folder / "claims" / session)
        except FileExistsError:
            return self._owner(session) or _me
        finally:
            draft.unlink()
        return _me

    async def _forward(self, owner: str, scope: Any, receive: Any, send: Any) -> None:
        parts, more = [], True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        query = f"?{scope['query_string'].decode()}" if scope["query_string"] else ""
        headers = [
            (name.decode("latin1"), value.decode("latin1"))
            for name, value in scope["headers"]
            if name not in HOP_BY_HOP and name != b"content-length"
        ]
        async with self._peer(owner).request(
            scope["method"],
            f"http://relay{scope['raw_path'].decode()}{query}",
            data=b"".join(parts),
            allow_redirects=False,
            skip_auto_headers=SKIPPED,
            headers=headers,
        ) as reply:
            passed = [(name.lower(), value) for name, value in reply.raw_headers if name.lower() not in HOP_BY_HOP]
            await send({"type": "http.response.start", "status": reply.status, "headers": passed})
            if reply.content_length is not None:
                await send({"type": "http.response.body", "body": await reply.read()})
                return
            async for chunk in reply.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    def _peer(self, owner: str) -> aiohttp.ClientSession:
        if owner not in self._peers:
            self._peers[owner] = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(str(self._folder / owner), limit=0, keepalive_timeout=60),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None),
            )
        return self._peers[owner]

    async def _lifespan(self, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "lifespan.startup":
            pass
        config = uvicorn.Config(
            self._app,
            uds=str(self._folder / _me),
            lifespan="off",
            access_log=False,
            log_level="warning",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        server = _Inner(config)
        serving = asyncio.create_task(server.serve())
        await server.up.wait()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        server.should_exit = True
        for peer in self._peers.values():
            await peer.close()
        await serving
        await send({"type": "lifespan.shutdown.complete"})


app = Relay(gym.app, Path(os.environ.get(FOLDER, ".")))
