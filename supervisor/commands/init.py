"""`gym-supervise init`: write a commented config.yaml to start from."""

from __future__ import annotations

import os

import click

from server_adapters.adapter import Life
from server_adapters.registry import PRESETS, SERVER_KINDS
from supervisor.errors import ConfigError, SupervisorError

FILE = "config.yaml"

EPILOG = """\b
Examples:
  gym-supervise init
  gym-supervise init --preset starlette-session

\b
Presets:
  gym-resources      NeMo Gym's resources servers
  gym-agent          NeMo Gym's agent servers
  starlette-session  any app with Starlette's SessionMiddleware
  mcp, mcp-sse       MCP over Streamable HTTP, and over HTTP+SSE
  socketio           Socket.IO
  marimo, shiny, gradio, streamlit
                     apps with pages of their own
  custom             ids in cookies, headers, queries, paths or JSON bodies
  none               servers that keep no session
"""

TEMPLATE = """\
# gym-supervise serve config.yaml
# Paths are relative to this file's folder. ${{NAME}} takes an environment variable.

# name: my-service                  # default: this file's name
# runtime_dir: run                  # private sockets; default: $RUNTIME_DIRECTORY, $XDG_RUNTIME_DIR, or one under /tmp

servers:
  main:
    app: server:app                 # module:attribute
    # app: {{script: app.py, argv: []}}  # a script that calls uvicorn.run; bind and workers: its own unless given here
    # factory: true                 # the attribute is a function that returns the app
    chdir: .                        # the workers' folder, first on sys.path
    env: {{}}                         # environment of the workers, beside that of `serve`
    bind: 127.0.0.1:8000            # or "[::1]:8000", :8000, unix:PATH, fd://N, systemd:NAME; port 0: a free one
    workers: 4
    placement: least_sessions       # who gets a new session; accepting: the worker that took the connection

    affinity:
      preset: {preset}
{affinity}
    claims:
      max_sessions: 50000           # the table's size; full is a 503, never a lost session
      # gone_retention_seconds: 3600  # forget a dead worker's sessions; default: they get the gone reply until the end

    # uvicorn:                      # passed to uvicorn.Config
    #   timeout_keep_alive: 30
    # health: /healthz              # answered without the app: 200 from a worker that is ready
    boot_tries: 5                   # failed boots in a row before the service ends with status 3
    timeouts:
      boot_seconds: 120             # import and start-up of the app
      stall_seconds: 60             # without a heartbeat for so long a worker is killed
      graceful_seconds: 30          # requests in flight at a stop
      drain_seconds: 300            # sessions of a worker that is replaced
      claim_seconds: 5              # waiting for the claim table before a 503
    # recycle:                      # replace a worker, after its sessions have ended, when it
    #   max_requests: 100000        # has served so many
    #   max_rss_mib: 2048           # has grown so large

log:
  level: info                       # debug, info, warning, error, critical
  format: console                   # or json
"""

ROUTES = """\
      # session_starts: ["POST /start"]   # routes beside the preset's
      # session_ends: ["POST /finish"]
"""

GYM = """\
      # Cookie and secret are those of the app's own SessionMiddleware. Give them where the app hides it:
      # cookie: MyServer___name
      # secret: ${{SESSION_SECRET}}
{routes}\
      stateless_routes: [/aggregate_metrics]
      session_close_retry_window_seconds: 300   # a session that has ended can be reached for so long
      # open_idle_seconds: 86400    # end a session whose client went away; default: never
"""


def lives(life: Life) -> str:
    """The lines of a preset that has nothing but lives to configure; they show its defaults."""
    never = "" if life.open_idle_seconds else "; default: never"
    shown = (
        ("session_close_retry_window_seconds", life.window_seconds, "after a session's end"),
        ("idle_seconds", life.idle_seconds, "after the last request for an id that was never started"),
        ("open_idle_seconds", life.open_idle_seconds or 86400, f"after the last request of an open session{never}"),
    )
    lines = "".join(f"      # {f'{key}: {value:g}':46}# {when}\n" for key, value, when in shown)
    return f"      # Ids are where the protocol says: docs/presets.md. How long claims live, in seconds:\n{lines}"


AFFINITY = {
    "gym-resources": GYM.format(routes=ROUTES),
    "gym-agent": GYM.format(routes="      # field: agent_session_id\n" + ROUTES),
    "starlette-session": """\
      field: user_id                # the key of the session's dict that names the session
      # Cookie, secret and max_age are those of the app's own SessionMiddleware. Give them where the app hides it:
      # cookie: session
      # secret: ${{SESSION_SECRET}}
      # max_age: 1209600
      # idle_seconds: 1209600       # life of a claim after its last request; default: max_age
"""
    + ROUTES,
    "custom": """\
      sources:                      # where a request's id is; those of one request must agree
        - header: x-session-id
        # - cookie: sid
        # - signed_cookie: {{name: session, secret: "${{SESSION_SECRET}}", field: id, max_age: 86400}}
        # - query: session
        # - path: "/sessions/(?P<session>[^/]+)"
        # - json: {{field: session_id, routes: [POST /open]}}
      replies:                      # where a reply gives out an id
        - response_header: x-session-id
        # - set_cookie: sid
        # - issue_cookie: sid       # for apps without ids: every new client gets one
      # unknown: claim              # an id that nobody claims starts a session; default pass: it runs where it lands
      idle_seconds: 86400           # life of a claim after its last request
""",
    **{preset: lives(kind.default_life) for preset, kind in SERVER_KINDS.items()},
    "none": "      # Every request runs where it lands: right only for an app that keeps nothing between requests.\n",
}


def render(preset: str) -> str:
    """The text of a config file for a preset."""
    return TEMPLATE.format(preset=preset, affinity=AFFINITY.get(preset, "").replace("{{", "{").replace("}}", "}"))


@click.command("init", epilog=EPILOG)
@click.option("--preset", type=click.Choice(PRESETS), default="gym-resources", show_default=True)
def command(preset: str) -> int:
    """Write a commented config.yaml into the current folder."""
    try:
        descriptor = os.open(FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        raise ConfigError(
            [f"{FILE}: found a file of this name, expected none; move it away, or write it into another folder"]
        ) from None
    except OSError as error:
        raise SupervisorError(
            FILE, found=f"a folder that takes no file ({error.strerror})", do="write it into another folder"
        ) from None
    with os.fdopen(descriptor, "w") as file:
        file.write(render(preset))
    print(f"{FILE} is written: set `app`, then `gym-supervise check {FILE}`")
    return 0
