"""nginx and HAProxy in front of single uvicorn processes: what people use today for sessions in memory.

The configs are what these two recommend for it, the backends are kept as a systemd unit with Restart=always would.
nginx has no session table without its commercial edition: a cookie of its own is hashed over the backends.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
from pathlib import Path

from benchmarks.harness.processes import Kept, free_port
from benchmarks.harness.rows import Unmeasurable
from benchmarks.servers import COOKIE
from benchmarks.servers.plain import uvicorn_command
from benchmarks.servers.variant import KEEP_ALIVE_SECONDS, Variant, answers

NGINX = """\
{user}worker_processes auto; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.err;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  map $cookie_affinity $affinity {{ "" $request_id; default $cookie_affinity; }}
  upstream app {{
    hash $affinity consistent;
{servers}
    keepalive 128;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=2048;
    keepalive_timeout {keep_alive};
    location / {{
      proxy_pass http://app;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      add_header Set-Cookie "affinity=$affinity; Path=/; HttpOnly" always;
    }}
  }}
}}
"""

HAPROXY = """\
global
  maxconn 4096
defaults
  mode http
  timeout connect 5s
  timeout client {keep_alive}s
  timeout server {keep_alive}s
frontend public
  bind 127.0.0.1:{port}
  default_backend app
backend app
  balance roundrobin
{affinity}
{servers}
"""

STICK = f"""\
  stick-table type string len 128 size 100k expire 2h
  stick store-response res.cook({COOKIE}),field(1,.)
  stick match req.cook({COOKIE}),field(1,.)"""

INSERT = "  cookie SRV insert indirect nocache"


def nginx(folder: Path, app: str, *, workers: int) -> Variant:
    """Hash over a cookie of its own."""
    program = _program("nginx")
    port = free_port()
    sockets = _sockets(folder, workers)
    servers = "\n".join(f"    server unix:{path};" for path in sockets)
    user = "user root;\n" if os.geteuid() == 0 else ""
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(user=user, folder=folder, servers=servers, port=port, keep_alive=KEEP_ALIVE_SECONDS))
    return _start("nginx", folder, app, sockets, port, [program, "-c", str(config), "-e", f"{folder}/nginx.err"])


def haproxy_stick(folder: Path, app: str, *, workers: int) -> Variant:
    """A stick table on the id in the app's own session cookie."""
    return _haproxy("haproxy-stick", folder, app, workers, affinity=STICK, option="check")


def haproxy_cookie(folder: Path, app: str, *, workers: int) -> Variant:
    """A cookie of its own that names the backend."""
    return _haproxy("haproxy-cookie", folder, app, workers, affinity=INSERT, option="check cookie w{number}")


def _haproxy(name: str, folder: Path, app: str, workers: int, *, affinity: str, option: str) -> Variant:
    program = _program("haproxy")
    port = free_port()
    sockets = _sockets(folder, workers)
    lines = [f"  server w{number} unix@{path} {option.format(number=number)}" for number, path in enumerate(sockets)]
    config = folder / "haproxy.cfg"
    config.write_text(
        HAPROXY.format(keep_alive=KEEP_ALIVE_SECONDS, port=port, affinity=affinity, servers="\n".join(lines))
    )
    return _start(name, folder, app, sockets, port, [program, "-W", "-db", "-f", str(config)])


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        raise Unmeasurable(f"{name} is not installed; benchmarks/install-peers does that")
    return found


def _sockets(folder: Path, workers: int) -> list[str]:
    return [f"{folder}/w{number}" for number in range(workers)]


def _start(name: str, folder: Path, app: str, sockets: list[str], port: int, proxy: list[str]) -> Variant:
    kept: list[Kept] = []
    try:
        for path in sockets:
            command = uvicorn_command(f"{app}:app", "--uds", path)
            kept.append(Kept(command, Path(f"{path}.log"), restart=True))
        backends = list(kept)
        for path, one in zip(sockets, backends, strict=True):
            one.wait_for(lambda path=path: listens(path), f"a backend of {name}")  # type: ignore[misc]
        kept.append(Kept(proxy, folder / f"{name}.log"))
        kept[-1].wait_for(lambda: answers(port), name)
    except BaseException:
        for one in kept:
            one.stop()
        raise
    return Variant(name, port, kept, reload=lambda: _restart(backends, sockets))


def _restart(backends: list[Kept], sockets: list[str]) -> None:
    """The backends one after the other, each after the one before it listens again."""
    for path, one in zip(sockets, backends, strict=True):
        before = one.pids()
        one.signal(signal.SIGTERM)
        one.replaced(before)
        one.wait_for(lambda path=path: listens(path), "a backend")  # type: ignore[misc]


def listens(path: str) -> bool:
    """Whether somebody listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0
