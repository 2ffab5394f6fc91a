"""A worker's routing, put together: claims, relay, router, and what runs beside them in its loop."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

from server_adapters.adapter import Adapter
from shmclaims import OwnRow
from supervisor.relay.client import RelayClient
from supervisor.relay.server import RelayServer
from supervisor.routing.claims import Claims, SharedClaims, SoloClaims
from supervisor.routing.forwarding import Forwarder
from supervisor.routing.owner import Owner
from supervisor.routing.placement import Placement
from supervisor.routing.replies import Replies
from supervisor.routing.request import App
from supervisor.routing.router import Router
from supervisor.routing.taking import Taker
from supervisor.worker_spec import WorkerSpec, private_path

SWEEP_SECONDS = 0.5


class Routing:
    """What a worker needs of its routing. With one worker, or without sessions, there is no private socket."""

    def __init__(
        self,
        spec: WorkerSpec,
        row: OwnRow,
        router: Router,
        claims: Claims,
        client: RelayClient | None,
        make_server: Callable[[dict[str, Any], set[Any]], RelayServer] | None,
    ) -> None:
        self.row = row
        self.router = router
        self._spec = spec
        self._claims = claims
        self._client = client
        self._make_server = make_server
        self._server: RelayServer | None = None

    async def open(self, state: dict[str, Any], tasks: set[Any]) -> None:
        """Listen for relayed requests. `state` is the lifespan's; `tasks` holds what must end before its shut-down."""
        if self._make_server is not None:
            self._server = self._make_server(state, tasks)
            await self._server.start(self._spec.private_path)

    async def sweep(self) -> None:
        """End the claims whose time is up, for as long as the worker runs."""
        claims = self._claims
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            for own in claims.book.due(time.monotonic()):
                claims.give_back(own)

    async def drain(self, seconds: float) -> None:
        """Wait for relayed requests in flight here, `seconds` at most."""
        if self._server is not None:
            try:
                await asyncio.wait_for(self._server.drained(), seconds)
            except TimeoutError:
                return

    async def close(self) -> None:
        """Close the private socket and the pooled connections."""
        if self._server is not None:
            self._server.stop_listening()
        if self._client is not None:
            await self._client.close()


def assemble(spec: WorkerSpec, app: App, adapter: Adapter) -> Routing:
    """Put together the routing of one worker around its app."""
    ring, me = spec.segment.ring, spec.incarnation
    row = ring.own(me)
    alone = spec.workers == 1 or not adapter.has_sessions
    claims: Claims
    client = None
    if alone:
        claims = SoloClaims(row, adapter.life)
    else:
        claims = SharedClaims(
            spec.segment.table,
            ring,
            row,
            adapter.life,
            incarnation=me,
            max_sessions=spec.server.claims.max_sessions,
            claim_seconds=spec.server.timeouts.claim_seconds,
        )

        def pid_of(incarnation: int) -> int | None:
            owner = ring.row(incarnation)
            return None if owner is None else owner.pid

        client = RelayClient(
            path_of=lambda incarnation: private_path(spec.runtime_dir, spec.name, incarnation),
            is_live=ring.is_live,
            pid_of=pid_of,
            uid=os.getuid(),
        )
    taker = Taker(claims, ring)
    replies = Replies(adapter, ring, server=spec.name)
    forwarder = Forwarder(client, Placement(spec.server.placement, me), ring, row)
    router = Router(app, adapter, claims, taker, replies, forwarder, row, incarnation=me, health=spec.server.health)
    if alone:
        return Routing(spec, row, router, claims, None, None)
    owner = Owner(router, claims, taker, replies, row)

    def make_server(state: dict[str, Any], tasks: set[Any]) -> RelayServer:
        return RelayServer(
            incarnation=me,
            uid=os.getuid(),
            state=state,
            admit=owner.admit,
            run=owner.run,
            abandon=owner.abandon,
            tasks=tasks,
        )

    return Routing(spec, row, router, claims, client, make_server)
