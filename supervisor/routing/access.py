"""The access line: one for each request, on the worker that received it, when the request is over.

It goes out through uvicorn's own logger with uvicorn's own arguments, so that filters and formats that were written for
`uvicorn.access` go on working; what uvicorn does not know (session, worker, owner, duration) are attributes of the
record. uvicorn's own line is switched off (`worker.serving`). A request that was relayed here has its line where it
came in, and none here.

Why at the end: duration, and whether the reply was cut, are known then; a stream has its line when it is over.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from time import perf_counter
from typing import Any
from urllib.parse import quote

from server_adapters.adapter import Adapter
from server_adapters.heads import ResponseHead
from shmclaims import WorkerRing
from supervisor.routing.listening import CLIENT_LEFT, Listener
from supervisor.routing.request import Receive, Request, Scope, Send
from supervisor.routing.shown import prefix, without

logger = logging.getLogger("uvicorn.access")

faults = logging.getLogger("gym_supervise.router")

MESSAGE = '%s - "%s %s HTTP/%s" %d'
"""uvicorn's."""

MOST_INDEXES = 1000
STARTS = frozenset({"http.response.start", "websocket.http.response.start"})


class Line:
    """What becomes of one request. `send` takes the place of the server's.

    owner     incarnation of the worker that served it; None: the reply was gym-supervise's own
    refused   kind of a reply of gym-supervise's own
    """

    __slots__ = (
        "_me",
        "_send",
        "began",
        "complete",
        "headers",
        "owner",
        "receive",
        "refused",
        "request",
        "session",
        "status",
    )

    def __init__(self, me: int, receive: Receive, send: Send) -> None:
        self.began = perf_counter()
        self.receive = receive
        self.request: Request | None = None
        self.session: str | None = None
        self.owner: int | None = None
        self.refused: str | None = None
        self.status = 0
        self.complete = False
        self.headers: Any = ()
        self._me = me
        self._send = send

    def send(self, message: dict[str, Any]) -> Awaitable[None]:
        """The server's `send`; a plain function, since a coroutine of its own would cost more than all it does."""
        kind = message["type"]
        if kind == "http.response.body":
            if not message.get("more_body", False):
                self.complete = True
        elif kind in STARTS:
            self.status = message["status"]
            self.headers = message.get("headers", ())
        elif kind == "websocket.accept":
            self.status = 101
            self.headers = message.get("headers", ())
        elif kind == "websocket.close" and not self.status:
            self.status = 403
        return self._send(message)

    def serve_here(self, session: str | None) -> None:
        """This worker runs the app for it, under the session that it names."""
        self.served(self._me, session)

    def served(self, owner: int, session: str | None) -> None:
        """A worker, by its incarnation, has run the app for it; a session that it was not known to have may be new."""
        self.owner = owner
        self.session = session or self.session


class AccessLog:
    """Writes the lines of one worker. `me` is its incarnation."""

    def __init__(self, adapter: Adapter, ring: WorkerRing, *, server: str, index: int, me: int) -> None:
        self._adapter = adapter
        self._ring = ring
        self._server = server
        self._index = index
        self._me = me
        self._indexes: dict[int | None, int] = {me: index}

    def begin(self, receive: Receive, send: Send) -> Line | None:
        """A request begins; None where nobody wants its line."""
        return Line(self._me, receive, send) if logger.isEnabledFor(logging.INFO) else None

    def end(self, line: Line, scope: Scope, *, failed: bool) -> None:
        """It is over. `failed`: the app has raised, and the server sends a 500 if no reply was begun.

        Never raises: a request is not to fail for its line.
        """
        try:
            self._write(line, scope, perf_counter() - line.began, failed=failed)
        except Exception:
            faults.exception("an access line could not be written")

    def _write(self, line: Line, scope: Scope, seconds: float, *, failed: bool) -> None:
        status = line.status or self._status_unsaid(line, scope, failed=failed)
        session = line.session or self._session_issued(line)
        client, target = scope.get("client"), without(session, _target(scope))
        method = "WebSocket" if scope["type"] == "websocket" else scope["method"]
        record = logger.makeRecord(
            logger.name,
            logging.INFO,
            __file__,
            0,
            MESSAGE,
            (f"{client[0]}:{client[1]}" if client else "", method, target, scope["http_version"], status),
            None,
        )
        record.__dict__.update(
            server=self._server,
            worker=self._index,
            owner=self._index_of(line.owner),
            session=None if session is None else prefix(session),
            duration_ms=int(seconds * 1e6) / 1000,
            refused=line.refused,
            cut=not line.complete and line.status != 0 and scope["type"] == "http",
        )
        logger.handle(record)

    def _index_of(self, incarnation: int | None) -> int | None:
        if incarnation is None or incarnation in self._indexes:
            return self._indexes.get(incarnation)
        row = self._ring.row(incarnation)
        if row is None:
            return None
        if len(self._indexes) > MOST_INDEXES:
            self._indexes.clear()
        self._indexes[incarnation] = row.index
        return row.index

    def _status_unsaid(self, line: Line, scope: Scope, *, failed: bool) -> int:
        """No reply was begun: the client has left, or the server makes up for the app with a 500."""
        if failed or scope["type"] != "http":
            return 500
        return CLIENT_LEFT if Listener(line.receive).client_left() else 500

    def _session_issued(self, line: Line) -> str | None:
        """A session that began on another worker: its id is in the reply alone."""
        request = line.request
        if request is None or line.owner in (None, self._me) or not request.reading.starts or not line.status:
            return None
        reply = ResponseHead(line.status, line.headers)
        return self._adapter.reply(request.head, request.reading, None, reply).issued


def _target(scope: Scope) -> str:
    raw: bytes | None = scope.get("raw_path")
    path = quote(scope["path"]) if raw is None else raw.decode("latin1")
    query: bytes = scope.get("query_string", b"")
    return f"{path}?{query.decode('latin1')}" if query else path
