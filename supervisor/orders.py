"""What operators ask for over the control socket and that takes time: reload, scale, drain. See control.py.

    {"command": "reload", "force": BOOL}
    {"command": "scale", "server": NAME, "workers": N}
    {"command": "drain", "worker": INDEX, "server": NAME or null}
    {"command": "wait", "ticket": N}

The first three are answered at once: refused, or with a ticket, and whether the change has begun or is queued. `wait`
is answered when the change is over.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping
from typing import Any

from supervisor.configs import Configs
from supervisor.control import Reply
from supervisor.core import events
from supervisor.core.effects import Tell
from supervisor.core.events import Event

logger = logging.getLogger("gym_supervise.supervisor")

COMMANDS = frozenset({"reload", "scale", "drain", "wait"})
KEPT = 100  # outcomes, for those who ask late
MOST_WAITERS = 8  # half of the control socket's connections: the rest is for those who do not wait

Answer = Mapping[str, Any]


class Orders:
    """All changes that somebody was given a ticket for.

    Args:
        configs: what a reload would read is looked at before it is queued.
        put: hands an event to the fleet; what it decides about it is told before `step`.

    """

    def __init__(self, configs: Configs, put: Callable[[Event], None]) -> None:
        self._configs = configs
        self._put = put
        self._tickets = itertools.count(1)
        self._told: dict[int, Tell] = {}
        self._asked: dict[int, Reply] = {}
        self._waiters: list[tuple[int, Reply]] = []

    def ask(self, request: Mapping[str, Any], reply: Reply) -> Answer | None:
        """Begin a change, or wait for one; the answer at once, or None: it comes through `reply`."""
        match request["command"]:
            case "reload":
                return self._reload(request, reply)
            case "scale":
                return self._scale(request, reply)
            case "drain":
                return self._drain(request, reply)
            case _:
                return self._wait(request, reply)

    def tell(self, effect: Tell) -> None:
        """What has become of a change."""
        self._told[effect.ticket] = effect
        while len(self._told) > KEPT:
            del self._told[next(iter(self._told))]

    def step(self) -> None:
        """Answer those whose answer is there."""
        for ticket, reply in self._asked.items():
            reply(_answer(ticket, self._told.get(ticket)))
        self._asked.clear()
        for waiter in list(self._waiters):
            ticket, reply = waiter
            if _over(self._told.get(ticket)):
                self._waiters.remove(waiter)
                reply(_answer(ticket, self._told[ticket]))

    def _begin(self, make: Callable[[int], Event], reply: Reply) -> Answer | None:
        ticket = next(self._tickets)
        self._asked[ticket] = reply
        self._put(make(ticket))
        return None

    def _reload(self, request: Mapping[str, Any], reply: Reply) -> Answer | None:
        if (problem := self._configs.problem()) is not None:
            logger.error("reload: nothing has changed: %s", problem)
            return {"ok": False, "kind": "refused", "error": f"nothing has changed: {problem}"}
        force = request.get("force") is True
        return self._begin(lambda ticket: events.ReloadAsked("the reload command", ticket, force), reply)

    def _scale(self, request: Mapping[str, Any], reply: Reply) -> Answer | None:
        name, workers = request.get("server"), request.get("workers")
        if (problem := self._unknown(name)) is not None:
            return problem
        if not isinstance(workers, int) or isinstance(workers, bool):
            return _usage(f"workers: found {workers!r:.40}, expected a number")
        server = str(name)
        return self._begin(lambda ticket: events.ScaleAsked("the scale command", server, workers, ticket=ticket), reply)

    def _drain(self, request: Mapping[str, Any], reply: Reply) -> Answer | None:
        names = list(self._configs.current.servers)
        index, name = request.get("worker"), request.get("server")
        if name is None and len(names) > 1:
            return _usage(f"server: found none, expected one of {', '.join(names)}")
        name = names[0] if name is None else name
        if (problem := self._unknown(name)) is not None:
            return problem
        if not isinstance(index, int) or isinstance(index, bool) or index < 0:
            return _usage(f"worker: found {index!r:.40}, expected the index of a worker")
        server = str(name)
        return self._begin(lambda ticket: events.DrainAsked("the drain command", server, index, ticket), reply)

    def _wait(self, request: Mapping[str, Any], reply: Reply) -> Answer | None:
        ticket = request.get("ticket")
        told = self._told.get(ticket) if isinstance(ticket, int) else None
        if told is None:
            return _usage(f"ticket: found {ticket!r:.40}, expected one that was given out lately")
        if _over(told):
            return _answer(told.ticket, told)
        if len(self._waiters) >= MOST_WAITERS:
            return {"ok": False, "kind": "busy", "error": f"{MOST_WAITERS} others wait already; the log tells the rest"}
        self._waiters.append((told.ticket, reply))
        return None

    def _unknown(self, name: object) -> Answer | None:
        names = self._configs.current.servers
        if isinstance(name, str) and name in names:
            return None
        return _usage(f"server: found {name!r:.80}, expected one of {', '.join(names)}")


def _usage(text: str) -> Answer:
    return {"ok": False, "kind": "usage", "error": text}


def _over(told: Tell | None) -> bool:
    return told is not None and told.outcome in ("done", "failed", "refused")


def _answer(ticket: int, told: Tell | None) -> Answer:
    if told is None:
        return {"ok": False, "kind": "ignored", "error": "it had no effect"}
    if told.outcome in ("failed", "refused"):
        return {"ok": False, "kind": told.outcome, "error": told.text, "ticket": ticket}
    return {"ok": True, "outcome": told.outcome, "detail": told.text, "ticket": ticket}
