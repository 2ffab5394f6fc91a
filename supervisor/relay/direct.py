"""A reply that its owner has written out goes straight to the client's connection, past the acceptor's server.

uvicorn's own way is the ASGI `send`: it looks at each header again, and writes head and body apart. The other way is
private to uvicorn's httptools protocol. So it is tried first, on a connection that is none: where it does not end in
the same bytes and the same state as `send`, or where another server runs, replies come as ASGI messages.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from supervisor.relay.frames import Whole
from supervisor.relay.lines import lines_of

logger = logging.getLogger("supervisor.relay")

Cycle = Any
"""uvicorn's RequestResponseCycle: one request and its reply."""


@functools.cache
def direct() -> Direct:
    """This process's."""
    return Direct()


class Direct:
    """The way past the server, with what is the same in many replies."""

    def __init__(self) -> None:
        self._defaults: list[tuple[bytes, bytes]] | None = None
        self._default_lines: bytes | None = None
        self._starts: dict[int, bytes] = {}
        self._type: type[Any] | None = None
        try:
            from uvicorn.protocols.http import httptools_impl

            self._status_lines = httptools_impl.STATUS_LINE
            if self._serves(httptools_impl.RequestResponseCycle):
                self._type = httptools_impl.RequestResponseCycle
        except Exception as error:  # whatever another uvicorn has in its place
            logger.debug("relay: replies come as ASGI messages: %r", error)

    def __repr__(self) -> str:
        return f"<Direct {'off' if self._type is None else 'on'}>"

    def cycle_of(self, send: Callable[[Any], Awaitable[None]] | None) -> Cycle | None:
        """The request that `send` is the server's `send` of; None where there is no way past it."""
        cycle: Cycle = getattr(send, "__self__", None)
        if not self.knows(cycle) or cycle.access_log or cycle.scope["method"] == "HEAD":  # whose body is not sent
            return None
        if cycle.default_headers is not self._defaults:
            self._learn(cycle.default_headers)
        return None if self._default_lines is None else cycle

    def knows(self, cycle: object) -> bool:
        """Whether this is a request of the server that has been tried."""
        return type(cycle) is self._type  # no subclass: it may have a `send` of its own

    async def send(self, cycle: Cycle, reply: Whole) -> None:
        """What `send` does with the two messages of a small reply."""
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if not cycle.disconnected:
            self.write(cycle, reply)

    def write(self, cycle: Cycle, reply: Whole) -> None:
        """The same, where nobody has to be waited for."""
        if cycle.default_headers is not self._defaults:
            self._learn(cycle.default_headers)
        data = reply.data
        start = self._starts.get(reply.status) or self._start_of(reply.status)
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        cycle.chunked_encoding = False
        if cycle.keep_alive:
            cycle.transport.write(start + data)
            cycle.response_complete = True
            cycle.message_event.set()
        else:
            end = data.index(b"\r\n\r\n") + 2
            cycle.transport.write(b"".join((start, data[:end], b"connection: close\r\n", data[end:])))
            cycle.response_complete = True
            cycle.message_event.set()
            cycle.transport.close()
        cycle.on_response()

    def _learn(self, defaults: list[tuple[bytes, bytes]]) -> None:
        """The headers that the server adds: the date changes every second."""
        self._defaults = defaults
        self._default_lines = lines_of(defaults, None)
        self._starts.clear()

    def _start_of(self, status: int) -> bytes:
        assert self._default_lines is not None
        self._starts[status] = start = self._status_lines[status] + self._default_lines
        return start

    def _serves(self, cycle_type: type) -> bool:
        """Whether a cycle that was served this way is in all that shows like one that was served by `send`."""
        defaults = [(b"date", b"Tue, 01 Dec 2026 13:00:00 GMT"), (b"Server", b"uvicorn")]
        body = b'{"count": 1}'
        for status in (200, 404):
            for keep_alive in (True, False):
                for headers in ([(b"content-length", b"12")], [(b"Set-Cookie", b"a=\xff"), (b"content-length", b"12")]):
                    ends = []
                    for past in (True, False):
                        end = _NoClient()
                        cycle = end.cycle(cycle_type, defaults, keep_alive=keep_alive)
                        if past:
                            self._learn(defaults)
                            lines = lines_of(headers, len(body))
                            if lines is None or self._default_lines is None:
                                return False
                            steps = self.send(cycle, Whole(status, lines + b"\r\n" + body))
                        else:
                            steps = _send_both(cycle.send, status, headers, body)
                        for _ in steps.__await__():
                            return False
                        ends.append(end.seen(cycle))
                    if ends[0] != ends[1]:
                        return False
        return True


async def _send_both(send: Any, status: int, headers: Any, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


class _NoClient:
    """A transport, its flow control, and all that has happened to them."""

    write_paused = False

    def __init__(self) -> None:
        self.written = b""
        self.closed = 0
        self.responses = 0

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed += 1

    def respond(self) -> None:
        self.responses += 1

    def cycle(self, cycle_type: type, defaults: Any, *, keep_alive: bool) -> Cycle:
        return cycle_type(
            scope={"type": "http", "method": "POST", "http_version": "1.1", "headers": []},
            transport=self,
            flow=self,
            logger=logger,
            access_logger=logger,
            access_log=False,
            default_headers=defaults,
            message_event=asyncio.Event(),
            expect_100_continue=True,
            keep_alive=keep_alive,
            on_response=self.respond,
        )

    def seen(self, cycle: Cycle) -> Any:
        state = {name: value for name, value in vars(cycle).items() if type(value) in (bool, int, bytearray, str)}
        return self.written, self.closed, self.responses, cycle.message_event.is_set(), state
