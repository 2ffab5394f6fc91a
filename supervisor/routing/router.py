"""The router: an ASGI app around the user's app, in every worker.

It reads the session out of each request, and runs the app where this worker owns the session, relays to the owner
where another does, and refuses with a reason where nobody can serve it (`rule` decides). The app sees its requests as
if it ran alone.
"""

from __future__ import annotations

import time

from server_adapters.adapter import Adapter, Reading
from shmclaims import AlreadyClaimed, OwnRow
from supervisor.relay.body import ClientLeft
from supervisor.relay.exchange import COMPLETE
from supervisor.routing import extension, health, rule
from supervisor.routing.access import AccessLog, Line
from supervisor.routing.claims import Claims
from supervisor.routing.forwarding import Forwarder, Moved
from supervisor.routing.listening import Listener, answer_nobody, note_whether_left
from supervisor.routing.placement import MOST_NOES
from supervisor.routing.plain_visit import PlainVisit, Surroundings
from supervisor.routing.replies import Refusal, Replies
from supervisor.routing.request import App, Receive, Request, Scope, Send, request_head
from supervisor.routing.sessions import Owned
from supervisor.routing.taking import Taker
from supervisor.routing.visit import Visit
from supervisor.routing.websockets import WebSockets

CLOSED = "the session was closed; a start that comes after its close is refused"
MAX_MOVES = 2  # a request goes elsewhere at most twice; then its session moves faster than it does


class Router:
    """The session rule as an ASGI app.

    `ready` is set once the worker accepts, `stopping` when it no longer does: from then on it takes no new sessions.
    """

    def __init__(
        self,
        app: App,
        adapter: Adapter,
        claims: Claims,
        taker: Taker,
        replies: Replies,
        forwarder: Forwarder,
        row: OwnRow,
        *,
        incarnation: int,
        health_path: str | None = None,
        access: AccessLog | None = None,
    ) -> None:
        self.ready = False
        self.stopping = False
        self.app = app
        self._adapter = adapter
        self._claims = claims
        self._book = claims.book
        self._taker = taker
        self._replies = replies
        self._forwarder = forwarder
        self.websockets = WebSockets(app, adapter, claims, replies, self._decide)
        self.around = Surroundings(adapter, claims, replies)
        self._row = row
        self._me = incarnation
        self._health = health_path
        self._access = access
        self._has_sessions = adapter.has_sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request or a WebSocket; the lifespan is the app's own."""
        row = self._row
        row.enter()
        line = None
        if self._access is not None and (line := self._access.begin(receive, send)) is not None:
            send = line.send
        failed = True
        try:
            if not self._has_sessions or scope["type"] != "http":
                await self._serve_other(scope, receive, send, line)
            else:
                head = request_head(scope)
                reading = self._adapter.read(head)
                session = reading.session
                own = None if session is None else self._book.get(session)
                plain = reading.plain and head.path != self._health
                if plain and (session is None or own is not None):
                    # Nearly every request of a worker's own.
                    visit = PlainVisit(self.around, head, reading, own, scope, send)
                    try:
                        await self.app(scope, receive, visit.send)
                    finally:
                        visit.finish()
                        if line is not None:
                            line.serve_here(visit.session)
                elif plain and session is not None and (owner := self._claims.owner(session)) is not None:
                    await self._forward(owner, session, Request(head, reading, scope, receive, send, line))
                else:
                    await self._http(Request(head, reading, scope, receive, send, line))
            failed = False
        finally:
            row.leave()
            if line is not None and self._access is not None:
                self._access.end(line, scope, failed=failed)

    def elsewhere(self, scope: Scope) -> int | None:
        """The other worker that a WebSocket's session lives in, as far as it is known at once."""
        return self.websockets.elsewhere(scope) if self._has_sessions else None

    async def _serve_other(self, scope: Scope, receive: Receive, send: Send, line: Line | None) -> None:
        """A WebSocket, or anything where there are no sessions."""
        if self._has_sessions:
            await self.websockets.serve(scope, receive, send, line)
        elif self._health is not None and scope["type"] == "http" and request_head(scope).path == self._health:
            await health.answer(send, ready=self.ready and not self.stopping)
        else:
            if line is not None:
                line.serve_here(None)
            await self.app(scope, receive, send)

    async def _http(self, request: Request) -> None:
        head, reading, line = request.head, request.reading, request.line
        if head.path == self._health:
            await health.answer(request.send, ready=self.ready and not self.stopping)
            return
        if reading.needs_body:
            try:
                request.reading = reading = self._adapter.read_body(head, reading, await request.body.whole())
            except ClientLeft:
                return
            if reading.starts:
                await note_whether_left(request)
                if request.left and reading.session is None:
                    return  # nobody knows a name for the session
        session = reading.session
        if line is not None:
            line.request, line.session = request, session
        try:
            own = None if session is None or reading.conflict else self._book.get(session)
            await (self._decide(request) if own is None else self.run(request, own))
        except Refusal as refusal:
            await self._refuse(refusal, request)

    async def _forward(self, owner: int, session: str, request: Request) -> None:
        """Have another worker run a plain request of a session that it owns."""
        line = request.line
        if line is not None:
            line.session = session
        try:
            outcome = await self._forwarder.ask(owner, session, request)
            if outcome is not COMPLETE:
                moved = await self._forwarder.settle(owner, session, request, outcome)
                if moved is not None:
                    await self._follow(owner, session, request, moved)
            elif line is not None:
                line.served(owner, session)
        except Refusal as refusal:
            await self._refuse(refusal, request)

    async def _refuse(self, refusal: Refusal, request: Request) -> None:
        if request.line is not None:
            request.line.owner, request.line.refused = None, refusal.kind
        await self._replies.send(refusal, request.head, request.reading, request.send, request.reading.session)

    async def run(self, request: Request, own: Owned | None) -> None:
        """Run the app here, under `own`'s claim. No await between finding the session and counting the request."""
        reading, scope, receive = request.reading, request.scope, request.receive
        if own is not None and self.refuses_start(reading, own):
            raise Refusal("session_closed", CLOSED, owner=self._me)
        if reading.mints:
            session = reading.session if own is None else own.session
            assert session is not None
            scope["headers"] = list(self._adapter.mint(request.head, session))
        listener = None
        if reading.starts and not reading.lasts:
            receive = listener = Listener(receive)
        visit = Visit(self._adapter, self._claims, self._replies, request, own, listener)
        scope.setdefault("extensions", {})[extension.NAME] = visit.extension
        try:
            await (answer_nobody(request.send) if request.left else self.app(scope, receive, visit.send))
        finally:
            visit.finish()
            if request.line is not None:
                request.line.serve_here(visit.session)

    def refuses_start(self, reading: Reading, own: Owned) -> bool:
        """Whether the request is a start that comes after its session's close."""
        return reading.starts and reading.typed and self._book.was_closed(own, time.monotonic())

    async def _decide(self, request: Request) -> None:
        """The request's session is not in this worker's book: follow the rule."""
        reading = request.reading
        session = reading.session
        fact = None if session is None or reading.conflict else await self._taker.find(session)
        decision = rule.decide(reading, fact, me=self._me, owned=False)
        match decision:
            case rule.Run() | rule.RunOwned():
                if session is None and (reading.ends or reading.stays_open):
                    self._replies.note_lost_end(request.head)
                run = self.websockets.run if request.head.websocket else self.run
                await run(request, None)
            case rule.Relay(owner):
                assert session is not None
                await self._follow(owner, session, request)
            case rule.ClaimAndRun():
                assert session is not None
                if self.stopping and self._forwarder.others_take_sessions:
                    await self._place(request, session, mint=False)
                else:
                    await self._follow(self._me, session, request)
            case rule.Place(mint, claim):
                if mint and (reading.ends or reading.stays_open):
                    self._replies.note_lost_end(request.head)
                if reading.drops and not claim:
                    kept = [header for header in request.scope["headers"] if header[0] not in reading.drops]
                    request.scope["headers"] = kept
                session = self._forwarder.new_id() if mint else session if claim else None
                await self._place(request, session, mint=mint)
            case rule.Refuse("session_gone"):
                assert fact is not None
                raise self._taker.gone(fact.incarnation)
            case rule.Refuse():
                raise self._taker.conflict(reading)

    async def _place(self, request: Request, session: str | None, *, mint: bool) -> None:
        """Give a new session to the worker with the most room, which claims it and runs the app."""
        avoid: frozenset[int] = frozenset()
        declined: frozenset[int] = frozenset()
        noes = 0
        while True:
            final = self.stopping or noes >= MOST_NOES
            target = self._forwarder.choose(avoid | declined, stopping=self.stopping)
            if target == self._me and declined and not final and self._forwarder.is_ahead:
                declined = frozenset()  # all others have said no, and meanwhile this worker would
                target = self._forwarder.choose(avoid, stopping=False)
            if target == self._me:
                owner = await self._start_here(session, request)
                if owner is None:
                    return
            else:
                moved = await self._forwarder.place(target, session, request, mint=mint, final=final)
                if moved is None:
                    return
                owner = moved.owner
                if moved.declined:
                    await note_whether_left(request)
                    if request.left and mint:
                        return  # nobody knows a name for the session
                    declined |= {target}
                    noes += 1
                    continue
            if owner is None or session is None:
                avoid |= {target}
            elif mint:
                detail = "the id made for this new session is held by another worker"
                raise Refusal("session_conflict", detail, owner=owner)
            else:
                await self._follow(owner, session, request)
                return

    async def _start_here(self, session: str | None, request: Request) -> int | None:
        """Claim a new session for this worker and run the app; returns its owner when another was quicker."""
        own = None
        if session is not None:
            reading = request.reading
            try:
                own = await self._taker.take(session, start=reading.starts, replace_gone=reading.replaces_gone)
            except AlreadyClaimed as taken:
                return taken.claim.incarnation
        run = self.websockets.run if request.head.websocket else self.run
        await run(request, own)
        return None

    async def _follow(self, owner: int, session: str, request: Request, moved: Moved | None = None) -> None:
        """Have the session's owner run the request; when the claim moves meanwhile, go after it.

        `moved` is what the owner has answered, if it was asked already.
        """
        for _ in range(1 + MAX_MOVES):
            if moved is None:
                if owner == self._me:
                    taker = await self._start_here(session, request)
                    if taker is None:
                        return
                    owner = taker
                    continue
                moved = await self._forwarder.relay(owner, session, request)
                if moved is None:
                    return
            found, moved = moved.owner, None
            if found is not None:
                owner = found
                continue
            fact = await self._taker.find(session)
            if fact is not None and not fact.live:
                raise self._taker.gone(fact.incarnation)
            owner = self._me if fact is None else fact.incarnation
        raise Refusal("session_conflict", "the session's claim moved while its request was on the way", owner=owner)
