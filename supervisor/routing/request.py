"""One request on its way through the router: what has been read of it, and how it goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from server_adapters.adapter import Reading
from server_adapters.heads import RequestHead
from supervisor.relay.body import BodyReplay

if TYPE_CHECKING:
    from supervisor.routing.access import Line

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

RELAYED_TO = "gym_supervise.relayed_to"
"""In the scope of a request that another worker serves by its session's claim: that worker's incarnation. No app sees
it: the other worker's gets a scope of its own.
"""


class Request:
    """An http request, or a WebSocket.

    `receive` is replaced by a BodyReplay once the body may have to be sent more than once.
    `line` is what its access line will say; None where it gets none, as in the worker that it was relayed to.
    `left`: its client went away before the app ran. It is a start that fails without running.
    """

    __slots__ = ("head", "left", "line", "reading", "receive", "scope", "send")

    def __init__(
        self,
        head: RequestHead,
        reading: Reading,
        scope: Scope,
        receive: Receive,
        send: Send,
        line: Line | None = None,
        *,
        left: bool = False,
    ) -> None:
        self.head = head
        self.reading = reading
        self.scope = scope
        self.receive = receive
        self.send = send
        self.line = line
        self.left = left

    @property
    def body(self) -> BodyReplay:
        """The body as one that can be sent again when a worker does not take the request."""
        if not isinstance(self.receive, BodyReplay):
            self.receive = BodyReplay(self.receive)
        return self.receive

    @property
    def unrouted(self) -> bool:
        """Starlette's routing has seen the request and found no route. False where the app has another routing."""
        return "router" in self.scope and "endpoint" not in self.scope


def request_head(scope: Scope) -> RequestHead:
    """The head of an ASGI http or websocket scope; its path is the one below root_path."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/"):
        path = path[len(root) :]
    return RequestHead(
        scope.get("method", "GET"),
        path,
        scope.get("raw_path") or b"",
        scope.get("query_string", b""),
        scope["headers"],
        scope["type"] == "websocket",
    )
