"""What `reload`, `scale` and `drain` have in common: ask, say that it has begun or waits, and wait for its end."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from ops.service import Service
from supervisor.commands.asking import Unanswered, ask, find_running
from supervisor.errors import SupervisorError

PATIENCE_SECONDS = 15.0  # for the first answer; a supervisor that forks, or reads a large config, takes moments

NO_WAIT = "Return once it has begun, or is queued; the log says what becomes of it."


def change(config: str, request: Mapping[str, Any], *, wait: bool) -> int:
    """Have the supervisor change something.

    Returns:
        0: it is done; or, without `wait`, it has begun or is queued

    Raises:
        click.UsageError: the request names something that there is not.
        SupervisorError: it was refused, it failed, or it cannot be known.

    """
    service = find_running(config)
    told = _ask(config, service, request, PATIENCE_SECONDS)
    if told["outcome"] == "queued":
        print(f"gym-supervise: queued: {told['detail']}", file=sys.stderr, flush=True)
    if told["outcome"] != "done" and wait:
        told = _ask(config, service, {"command": "wait", "ticket": told["ticket"]}, None)
    print(told["detail"] if told["outcome"] == "done" else f"{request['command']}: {told['outcome']}")
    return 0


def _ask(config: str, service: Service, request: Mapping[str, Any], seconds: float | None) -> dict[str, Any]:
    try:
        reply = ask(service.runtime_dir, request, seconds=seconds)
    except Unanswered as trouble:
        raise SupervisorError(f"{config}: the supervisor was asked, but {trouble}; its log says more") from None
    if reply["ok"]:
        return reply
    if reply.get("kind") == "usage":
        raise click.UsageError(str(reply.get("error")))
    raise SupervisorError(f"{request['command']}: {reply.get('error')}")
