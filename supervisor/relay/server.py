"""The owner's side: a private socket, an answer to each request before anything runs, and the app behind it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from supervisor.relay import unix
from supervisor.relay.channel import Channel
from supervisor.relay.frames import Ack, Open
from supervisor.relay.reply import Reply, app_logger
from supervisor.relay.upload import Upload
from supervisor.relay.websocket.owner import OwnerSocket

__all__ = ["Ack", "Open", "RelayServer"]

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Admit = Callable[[Open], Awaitable[Ack]]
Run = Callable[[Open, dict[str, Any], Receive, Send], Coroutine[Any, Any, None]]


class RelayServer:
    """Takes the requests that other workers relay to this one.

    Args:
        incarnation: this worker's.
        uid: the only user that may connect.
        state: the lifespan's state; each request gets a copy, as the server's own do.
        admit: decides about a request; nothing has run yet.
        run: runs the app; called after the answer was OK.
        abandon: called in place of `run` when the acceptor or its client has gone after `admit` said OK.
        tasks: holds the tasks of running requests.
        holds: whether there is nothing to decide about a request: it is run without `admit`.

    """

    def __init__(
        self,
        *,
        incarnation: int,
        uid: int,
        state: dict[str, Any],
        admit: Admit,
        run: Run,
        abandon: Callable[[Open], None],
        tasks: set[asyncio.Task[None]],
        holds: Callable[[Open], bool] = lambda _: False,
    ) -> None:
        self.incarnation = incarnation
        self.uid = uid
        self.in_flight = 0
        self.channels: set[Channel] = set()
        self._state = state
        self._holds = holds
        self._admit = admit
        self._run = run
        self._abandon = abandon
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._listener: asyncio.Server | None = None
        self._path = ""
        self._empty: asyncio.Event | None = None

    def __repr__(self) -> str:
        return f"<RelayServer {self.incarnation} connections={len(self.channels)} in_flight={self.in_flight}>"

    async def start(self, path: str) -> None:
        """Listen at `path`, for this user alone.

        Raises:
            OSError: as bind(2); ENAMETOOLONG names the limit.

        """
        sock = unix.listen(path)
        self._path = path
        # The reference keeps it open: uvloop closes a listener whose Server is dropped.
        self._listener = await self._loop.create_unix_server(
            lambda: Channel(self, self._loop), sock=sock, backlog=unix.BACKLOG
        )

    def stop_listening(self) -> None:
        """Take no new connections; those that are there go on."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)

    async def drained(self) -> None:
        """Return when no relayed request is in flight."""
        while self.in_flight:
            if self._empty is None:
                self._empty = asyncio.Event()
            await self._empty.wait()

    def close_websockets(self) -> None:
        """Close every relayed WebSocket with 1012, as the server does with those of its own when it stops."""
        for channel in list(self.channels):
            channel.close_socket()

    def close(self) -> None:
        """Stop listening and end every connection; apps that still run get http.disconnect."""
        self.stop_listening()
        for channel in list(self.channels):
            channel.close()

    # for the channels

    def serve(self, request: Open, reply: Reply | OwnerSocket, upload: Upload | OwnerSocket) -> None:
        """Serve a request, or a WebSocket, in a task of its own."""
        self.in_flight += 1
        task = self._loop.create_task(self._serve(request, reply, upload))
        if not task.done():  # an eager one may be
            reply.task = task
            self._tasks.add(task)

    async def _serve(self, request: Open, reply: Reply | OwnerSocket, upload: Upload | OwnerSocket) -> None:
        try:
            ack = Ack.OK if self._holds(request) else await self._admit(request)
            if ack is not Ack.OK:
                reply.refuse(ack)
            elif reply.disconnected:
                self._abandon(request)
            else:
                # Before the app's first line, where the acceptor waits for it: with a body that is to follow, or with
                # a placed request, which it places elsewhere when nobody has taken it.
                if request.more_body or request.mode == "placed":
                    reply.take()
                await reply.drive(self._run(request, _scope(request, self._state), upload.receive, reply.send))
                if not reply.complete and not reply.disconnected:
                    app_logger.error("ASGI callable returned without %s.", reply.lacks)
                    reply.fail()
        except BaseException as error:
            reply.fail()
            if not isinstance(error, Exception):  # this worker ends: the task is cancelled
                raise
            app_logger.error("Exception in ASGI application\n", exc_info=error)
        finally:
            if reply.task is not None:
                self._tasks.discard(reply.task)
            self.in_flight -= 1
            if not self.in_flight and self._empty is not None:
                self._empty.set()
                self._empty = None


def _scope(request: Open, state: dict[str, Any]) -> dict[str, Any]:
    fields = request.scope
    scope: dict[str, Any] = {
        "type": fields.type,
        "asgi": fields.asgi,
        "http_version": fields.http_version,
        "server": fields.server,
        "client": fields.client,
        "scheme": fields.scheme,
        "root_path": fields.root_path,
        "path": fields.path,
        "raw_path": fields.raw_path,
        "query_string": fields.query_string,
        "headers": request.headers,
        "state": state.copy(),
    }
    if fields.type == "http":
        scope["method"] = fields.method
    else:
        scope["subprotocols"] = request.subprotocols or []
    if request.extensions is not None:
        scope["extensions"] = {name: {} for name in request.extensions}
    return scope
