"""`gym-supervise release`: end one claim, so that its session id is nobody's."""

from __future__ import annotations

import click

from supervisor.commands.asking import Unanswered, ask, find_running
from supervisor.errors import SupervisorError

PATIENCE_SECONDS = 10.0  # the supervisor gives up after 5

EPILOG = """\b
Examples:
  gym-supervise release config.yaml 0f8fad5b-d9cb-469f-a165-70867728950e
  gym-supervise release config.yaml 8d1c5f0e6a7b4c3d2e1f0a9b8c7d6e5f --when-idle

\b
The second form is a digest, as `claims` shows it. Only for a session that is
over: what the app keeps of it stays in its worker, and the id may start anew,
empty, on any of them. Never under a request in flight: without --when-idle it
is refused then.

\b
Exit status: 0 the claim has ended, or ends when its worker is idle; 1 it stays,
and the message says why; 2 usage; 6 nothing runs there.
"""


@click.command("release", epilog=EPILOG)
@click.argument("config", type=click.Path())
@click.argument("session", metavar="SESSION_ID|DIGEST")
@click.option("--server", help="The server whose session it is; needed when several have it.")
@click.option("--when-idle", is_flag=True, help="With requests in flight: end it with the last of them.")
def command(config: str, session: str, *, server: str | None, when_idle: bool) -> int:
    """End the claim of one session, so that its id is nobody's."""
    service = find_running(config)
    request = {"command": "release", "session": session, "server": server, "when_idle": when_idle}
    try:
        reply = ask(service.runtime_dir, request, seconds=PATIENCE_SECONDS)
    except Unanswered as trouble:
        raise SupervisorError(f"{config}: the supervisor was asked, but {trouble}") from None
    if not reply["ok"]:
        if reply.get("kind") == "usage":
            raise click.UsageError(str(reply.get("error")))
        raise SupervisorError(f"not released: {reply.get('error')}", do=_advice(reply.get("kind")))
    name = f"session {reply['session']}..." if reply["session"] else f"digest {reply['digest']}"
    print(f"{name} of server {reply['server']}: {reply['detail']}")
    return 0


def _advice(kind: object) -> str:
    if kind == "in_flight":
        return "--when-idle ends it with the last of them"
    return ""
