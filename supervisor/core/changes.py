"""What operators want changed, one after the other: a reload, another number of workers, one worker replaced.

A change is begun when those before it are over; a reload also waits until nothing drains any more, so that there are
never more than two generations. What changes is decided by `advance`, which the fleet calls after every event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from supervisor.core.effects import CommitConfig, DropConfig, Effect, Log, ReadConfig, Tell
from supervisor.core.plan import MAX_PROCESSES, MAX_WORKERS, ServerPlan
from supervisor.core.worker_state import State

if TYPE_CHECKING:
    from supervisor.core.server import Server

Servers = Mapping[str, "Server"]


class Change:
    """One change. `tickets` are told what becomes of it; `over` is set when nothing more happens."""

    what = "a change"

    def __init__(self, origin: str, ticket: int) -> None:
        self.origin = origin
        self.tickets = [ticket] if ticket else []
        self.over = self.failed = False
        self.queued = False

    def waits_for(self, servers: Servers) -> str | None:
        """What has to end before this can begin; None: nothing."""
        del servers
        return None

    def begin(self, servers: Servers) -> list[Effect]:
        """Begin."""
        raise NotImplementedError

    def advance(self, servers: Servers, now: float) -> list[Effect]:
        """Go on, when something has happened that allows it."""
        raise NotImplementedError

    def end(self, text: str, server: str | None = None, *, failed: bool = False) -> list[Effect]:
        """It is over: say so to all."""
        self.over, self.failed = True, failed
        said = [Tell(ticket, "failed" if failed else "done", text) for ticket in self.tickets]
        return [Log("error" if failed else "info", f"{self.what}: {text}", server), *said]


class Reload(Change):
    """Config and code anew: read, a canary for each server, then all the other workers."""

    what = "reload"

    def __init__(self, origin: str, ticket: int, *, force: bool) -> None:
        super().__init__(origin, ticket)
        self.force = force
        self._plans: Mapping[str, ServerPlan] | None = None
        self._canaries = False
        self._rolling = False

    def waits_for(self, servers: Servers) -> str | None:
        draining = sum(len(server.leaving) for server in servers.values())
        return f"{draining} workers of the generation before still drain" if draining else None

    def begin(self, servers: Servers) -> list[Effect]:
        del servers
        return [Log("info", f"reload: {self.origin}"), ReadConfig()]

    def read(self, plans: Mapping[str, ServerPlan], servers: Servers) -> list[Effect]:
        """The config is there and can be had."""
        self._plans = plans
        return [effect for server in servers.values() for effect in server.share()]

    def refused(self, reason: str) -> list[Effect]:
        """The config cannot be had."""
        return self.end(f"nothing has changed: {reason}", failed=True)

    def advance(self, servers: Servers, now: float) -> list[Effect]:
        if self._plans is None:
            return []
        if self._rolling:
            return self._see_end(servers)
        if not self._canaries:
            for server in servers.values():
                if server.share_error:
                    text = f"its only worker cannot hand its sessions over: {server.share_error}"
                    return [DropConfig(), *self.refused(f"{server.plan.name}: {text}")]
            if not all(server.ready_to_share for server in servers.values()):
                return []
            return self._start_canaries(servers)
        for server in servers.values():
            assert server.rollout is not None
            if server.rollout.failed is not None:
                return self._abort(server.rollout.failed, server.plan.name, servers, now)
        if not all(server.rollout is not None and server.rollout.held for server in servers.values()):
            return []
        return self._commit(servers, now)

    def _start_canaries(self, servers: Servers) -> list[Effect]:
        assert self._plans is not None
        self._canaries = True
        effects: list[Effect] = []
        for name, server in servers.items():
            staying = min(len(server.seats), self._plans[name].workers)
            effects += server.roll(range(staying), "a reload", canary=True)
        return effects

    def _commit(self, servers: Servers, now: float) -> list[Effect]:
        assert self._plans is not None
        self._rolling = True
        effects: list[Effect] = [CommitConfig()]
        for name, server in servers.items():
            assert server.rollout is not None
            server.adopt(self._plans[name])
            effects += server.resize(self._plans[name].workers, "a reload with fewer workers", now)
            effects += server.rollout.go_on(now)
        return effects

    def _abort(self, reason: str, name: str, servers: Servers, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for server in servers.values():
            if server.rollout is not None:
                effects += server.rollout.give_up("the reload has failed", now)
        text = f"the workers that were there go on, with the code and config that they have: {name}: {reason}"
        return [*effects, DropConfig(), *self.end(text, failed=True)]

    def _see_end(self, servers: Servers) -> list[Effect]:
        rollouts = {name: server.rollout for name, server in servers.items() if server.rollout is not None}
        if not all(rollout.over for rollout in rollouts.values()):
            return []
        replaced = sum(rollout.replaced for rollout in rollouts.values())
        failed = [f"{name}: {rollout.failed}" for name, rollout in rollouts.items() if rollout.failed is not None]
        if failed:
            text = f"only {replaced} workers are replaced, the others still have the old code: {'; '.join(failed)}"
            return self.end(text, failed=True)
        return self.end(f"{replaced} workers are replaced{draining(servers)}")


class Scale(Change):
    """Another number of workers in one server."""

    what = "scale"

    def __init__(self, origin: str, ticket: int, server: str, workers: int | None, step: int) -> None:
        super().__init__(origin, ticket)
        self._server = server
        self._workers = workers
        self._step = step
        self._before = 0
        self._wanted: int | None = None

    def begin(self, servers: Servers) -> list[Effect]:
        server = servers[self._server]
        self._before = len(server.seats)
        workers = self._before + self._step if self._workers is None else self._workers
        if (reason := _refusal(server, workers)) is not None:
            return self.end(f"nothing has changed: {reason}", self._server, failed=True)
        self._wanted = workers
        effects: list[Effect] = [Log("info", f"{self._before} to {workers} workers: {self.origin}", self._server)]
        return effects + server.share() if workers > 1 else effects

    def advance(self, servers: Servers, now: float) -> list[Effect]:
        server, wanted = servers[self._server], self._wanted
        assert wanted is not None
        if server.share_error and wanted > self._before:
            text = f"its only worker cannot hand its sessions over: {server.share_error}"
            return self.end(f"nothing has changed: {text}", self._server, failed=True)
        if wanted > self._before and not server.ready_to_share:
            return []
        effects = server.resize(wanted, f"there are to be {wanted} workers", now) if wanted != len(server.seats) else []
        new = server.seats[self._before :]
        if (failed := next((seat for seat in new if seat.state in (State.BACKOFF, State.FAILED)), None)) is not None:
            text = f"there are {wanted} places, but the new worker {failed.index} failed to boot; it is tried again"
            return [*effects, *self.end(text, self._server, failed=True)]
        if any(seat.state is not State.READY for seat in new):
            return effects
        return [*effects, *self.end(f"{wanted} workers{draining(servers, self._server)}", self._server)]


class Replace(Change):
    """A new worker in place of one, which drains."""

    what = "drain"

    def __init__(self, origin: str, ticket: int, server: str, index: int) -> None:
        super().__init__(origin, ticket)
        self._server = server
        self._index = index
        self._started = False

    def begin(self, servers: Servers) -> list[Effect]:
        server = servers[self._server]
        if self._index >= len(server.seats):
            text = f"worker {self._index}: found no such worker, expected 0 to {len(server.seats) - 1}"
            return self.end(text, self._server, failed=True)
        text = f"worker {self._index} is to be replaced: {self.origin}"
        return [Log("info", text, self._server, self._index), *server.share()]

    def advance(self, servers: Servers, now: float) -> list[Effect]:
        del now
        server = servers[self._server]
        if not self._started:
            if server.share_error:
                text = f"nothing has changed: the only worker cannot hand its sessions over: {server.share_error}"
                return self.end(text, self._server, failed=True)
            if not server.ready_to_share:
                return []
            self._started = True
            return server.roll([self._index], self.origin)
        rollout = server.rollout
        assert rollout is not None
        if not rollout.over:
            return []
        if rollout.failed is not None:
            return self.end(f"worker {self._index} stays: {rollout.failed}", self._server, failed=True)
        return self.end(f"worker {self._index} is replaced{draining(servers, self._server)}", self._server)


class Recycle(Replace):
    """The same, since it has served or grown enough."""

    what = "recycle"


_NO_AFFINITY = (
    "the server has no affinity, so its sessions could not be told apart between two workers; set one (none for a "
    "server that keeps no sessions) and start anew"
)


def _refusal(server: Server, workers: int) -> str | None:
    if not 1 <= workers <= MAX_WORKERS:
        return f"workers: found {workers}, expected 1 to {MAX_WORKERS}"
    if workers > 1 and not server.plan.may_share:
        return _NO_AFFINITY
    if workers + len(server.leaving) > MAX_PROCESSES:
        return f"{len(server.leaving)} workers still drain; with {workers} more there would be over {MAX_PROCESSES}"
    return None


def draining(servers: Servers, server: str | None = None) -> str:
    """The end of a sentence: how many drain, and for how long at most."""
    chosen = [one for name, one in servers.items() if server in (None, name)]
    count = sum(len(one.leaving) for one in chosen)
    if not count:
        return ""
    seconds = max(one.plan.drain_seconds for one in chosen)
    return f"; {count} drain{'s' if count == 1 else ''} their sessions for at most {seconds:g} s"
