"""A worker's routing, put together: claims, relay, router, and what runs beside them in its loop."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from server_adapters.adapter import Adapter
from shmclaims import OwnRow
from supervisor.core.messages import Release, Released
from supervisor.processes.worker_spec import WorkerSpec, private_path
from supervisor.relay.client import RelayClient
from supervisor.relay.server import RelayServer
from supervisor.routing.access import AccessLog
from supervisor.routing.claims import Claims, SharedClaims
from supervisor.routing.forwarding import Forwarder
from supervisor.routing.owner import Owner
from supervisor.routing.placement import Placement
from supervisor.routing.releasing import release
from supervisor.routing.replies import Replies
from supervisor.routing.request import App
from supervisor.routing.router import Router
from supervisor.routing.sessions import Book
from supervisor.routing.solo import SoloClaims
from supervisor.routing.sweep import sweep
from supervisor.routing.taking import Taker


def assemble(spec: WorkerSpec, app: App, adapter: Adapter) -> Routing:
    """Put together the routing of one worker around its app."""
    return Routing(spec, app, adapter)


class Routing:
    """What a worker needs of its routing. With one worker there is no private socket and no claim, until `share`;
    without sessions there never is.
    """

    def __init__(self, spec: WorkerSpec, app: App, adapter: Adapter) -> None:
        ring = spec.segment.ring
        self._spec = spec
        self._life = adapter.life
        self._has_sessions = adapter.has_sessions
        self._solo = SoloClaims(ring.own(spec.incarnation), adapter.life) if self._alone else None
        self._claims: Claims = self._solo or self._shared_claims(None)
        self._client = None if self._solo else self._make_client()
        self._server: RelayServer | None = None
        self._state: dict[str, Any] = {}
        self._tasks: set[Any] = set()
        self.row: OwnRow = ring.own(spec.incarnation)
        self._taker = Taker(self._claims, ring)
        self._replies = Replies(adapter, ring, server=spec.name)
        placement = Placement(spec.server.placement, spec.incarnation)
        self._forwarder = Forwarder(self._client, placement, ring, self.row, replies=self._replies)
        self.router = Router(
            app,
            adapter,
            self._claims,
            self._taker,
            self._replies,
            self._forwarder,
            self.row,
            incarnation=spec.incarnation,
            health_path=spec.server.health,
            access=AccessLog(adapter, ring, server=spec.name, index=spec.index, me=spec.incarnation)
            if spec.server.uvicorn.get("access_log", True)
            else None,
        )

    async def open(self, state: dict[str, Any], tasks: set[Any]) -> None:
        """Listen for relayed requests. `state` is the lifespan's; `tasks` holds what must end before its shut-down."""
        self._state, self._tasks = state, tasks
        if self._solo is None:
            await self._listen()

    async def share(self) -> None:
        """Become one of several workers: listen for relayed requests, and claim every session that is held here.

        To be awaited before a second worker is announced as ready. Raises what SoloClaims.share and RelayServer.start
        raise; it can be called again.
        """
        if self._solo is None or not self._has_sessions:
            return
        if self._server is None:
            await self._listen()
        await self._solo.share(self._shared_claims(self._solo.book))
        if self._client is None:
            self._client = self._make_client()
            self._forwarder.connect(self._client)

    async def sweep(self) -> None:
        """End the claims whose time is up, for as long as the worker runs."""
        await sweep(self._claims)

    def settled(self, now: float, linger_seconds: float) -> bool:
        """Whether nothing is left here that a request could be relayed for: see Book.settled."""
        return (self._server is None or not self._server.in_flight) and self._claims.book.settled(now, linger_seconds)

    def open_sessions(self) -> list[str]:
        """The ids of this worker's sessions that have not ended."""
        return [own.session for own in self._claims.book if own.ended_at is None]

    def release(self, order: Release) -> Released:
        """End one claim of this worker, on an operator's word."""
        return release(order, self._claims, self._spec.segment.table)

    async def drain(self, seconds: float) -> None:
        """Close relayed WebSockets, and wait for relayed requests in flight here, `seconds` at most."""
        if self._server is not None:
            self._server.close_websockets()
            try:
                await asyncio.wait_for(self._server.drained(), seconds)
            except TimeoutError:
                return

    def end_relays(self) -> None:
        """End the relayed requests that still run here: their apps get http.disconnect."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        """Close the private socket and the pooled connections."""
        if self._server is not None:
            self._server.stop_listening()
        if self._client is not None:
            await self._client.close()

    @property
    def has_siblings(self) -> bool:
        """Whether there are other workers, or may be, that requests are relayed to."""
        return self._server is not None

    @property
    def _alone(self) -> bool:
        return (self._spec.workers == 1 and not self._spec.shared) or not self._has_sessions

    def _shared_claims(self, book: Book | None) -> SharedClaims:
        spec = self._spec
        return SharedClaims(
            spec.segment.table,
            spec.segment.ring,
            spec.segment.ring.own(spec.incarnation),
            self._life,
            incarnation=spec.incarnation,
            max_sessions=spec.server.claims.max_sessions,
            claim_seconds=spec.server.timeouts.claim_seconds,
            book=book,
        )

    def _make_client(self) -> RelayClient:
        spec, ring = self._spec, self._spec.segment.ring

        def pid_of(incarnation: int) -> int | None:
            owner = ring.row(incarnation)
            return None if owner is None else owner.pid

        return RelayClient(
            path_of=lambda incarnation: private_path(spec.runtime_dir, spec.name, incarnation),
            is_live=ring.is_live,
            pid_of=pid_of,
            uid=os.getuid(),
        )

    async def _listen(self) -> None:
        owner = Owner(self.router, self._claims, self._taker, self._replies, self._forwarder, self.row)
        server = RelayServer(
            incarnation=self._spec.incarnation,
            uid=os.getuid(),
            state=self._state,
            holds=owner.holds,
            admit=owner.admit,
            run=owner.run,
            abandon=owner.abandon,
            tasks=self._tasks,
        )
        await server.start(self._spec.private_path)
        self._server = server
