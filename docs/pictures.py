"""Makes the pictures of `top`, `claims --watch` and `claims SESSION` for the README: `make pictures`.

They are what a real terminal (tmux) shows of a real service: the counter example on four workers, under a load of
episodes, one of its workers killed. What tmux has on its screen, colours included, becomes an SVG.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from ops import service
from shmclaims import Segment

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
OUT = FOLDER / "pictures"
COMMAND = f"{sys.executable} -c 'import gym_supervise; gym_supervise.main()'"
CLIENTS = 12
STEPS = 25
DEADLINE_SECONDS = 60.0


def main() -> None:
    """Make all of them."""
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, _service(Path(folder)) as config, _load(config) as sessions:
        _until(lambda: len(sessions) > 60, "some sessions")
        ring = _segment(config).ring
        victim = ring.row(ring.seats()[1].incarnation)
        assert victim is not None
        lost = next(one for one in sessions if _owner(config, one) == victim.incarnation)
        os.kill(victim.pid, signal.SIGKILL)
        _until(lambda: len(ring.candidates()) == 4, "its successor")
        _take("top", config, "top CONFIG --interval 2", (112, 11), r"[1-9]\d requests/s(.|\n)*[1-9]\d* gone")
        _take("claims", config, "claims CONFIG --watch", (120, 14), r"\d+ claims")
        _take("claim", config, f"claims CONFIG {lost}", (84, 9), r"killed by SIGKILL\s")


@contextlib.contextmanager
def _service(folder: Path) -> Iterator[str]:
    """The counter on four workers; its config."""
    config = folder / "counter.yaml"
    server = {
        "app": "examples.counter:app",
        "chdir": str(ROOT),
        "bind": "127.0.0.1:0",
        "workers": 4,
        "affinity": {"preset": "gym-resources"},
        "claims": {"max_sessions": 2000},
        "uvicorn": {"access_log": False},
    }
    config.write_text(json.dumps({"runtime_dir": str(folder / "run"), "servers": {"counter": server}}))
    command = [sys.executable, "-c", "import gym_supervise; gym_supervise.main()", "serve", str(config)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        try:
            _until(lambda: _is_ready(folder), "four ready workers")
            yield str(config)
        finally:
            process.terminate()


def _is_ready(folder: Path) -> bool:
    found = service.read(folder / "run")
    return found is not None and bool(found.segments) and len(_attach(found).ring.candidates()) == 4


def _segment(config: str) -> Segment:
    found = service.read(Path(config).parent / "run")
    assert found is not None
    return _attach(found)


def _attach(found: service.Service) -> Segment:
    return Segment.attach(found.segments["counter"])


def _owner(config: str, session: str) -> int:
    claim = _segment(config).table.lookup(session.encode())
    return 0 if claim is None else claim.incarnation


@contextlib.contextmanager
def _load(config: str) -> Iterator[list[str]]:
    """Episodes, one after the other, from some clients; the ids of their sessions."""
    port = int(_segment(config).info["bind"].rsplit(":", 1)[1])
    sessions: list[str] = []
    over = threading.Event()
    clients = [threading.Thread(target=_episodes, args=(port, sessions, over)) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        yield sessions
    finally:
        over.set()
        for client in clients:
            client.join()


def _episodes(port: int, sessions: list[str], over: threading.Event) -> None:
    while not over.is_set():
        with contextlib.suppress(OSError, http.client.HTTPException):
            _episode(port, sessions, over)


def _episode(port: int, sessions: list[str], over: threading.Event) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    headers = {"content-type": "application/json"}
    for number in range(STEPS):
        path, body = ("/increment_counter", b'{"count": 1}') if number else ("/seed_session", b'{"initial_count": 0}')
        connection.request("POST", path, body, headers)
        reply = connection.getresponse()
        reply.read()
        cookie = (reply.headers["set-cookie"] or "").split(";")[0]
        if cookie and not number:
            sessions.append(_session_of(cookie))
        headers["cookie"] = cookie
        over.wait(0.02)
    connection.close()


def _session_of(cookie: str) -> str:
    payload = cookie.partition("=")[2].split(".")[0]
    return str(json.loads(b64decode(payload))["session_id"])


def _take(name: str, config: str, arguments: str, size: tuple[int, int], wanted: str) -> None:
    """Run a command in a terminal of that size until its screen is as wanted; then draw that."""
    width, height = size
    tmux = ["tmux", "-L", f"pictures-{os.getpid()}", "-f", "/dev/null"]
    command = f"{COMMAND} {arguments.replace('CONFIG', config)}; read -r _"
    subprocess.run([*tmux, "new-session", "-d", "-x", str(width), "-y", str(height), command], check=True, cwd=ROOT)
    try:
        _until(lambda: re.search(wanted, _screen(tmux)), f"{name}: {wanted}")
        text = Text.from_ansi(_screen(tmux, "-e").rstrip("\n"))
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(text, no_wrap=True, overflow="crop")
    svg = console.export_svg(title=f"gym-supervise {arguments}", theme=MONOKAI, unique_id=name)
    # Without the fonts that a viewer would have to fetch from elsewhere.
    (OUT / f"{name}.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))
    print(f"docs/pictures/{name}.svg")


def _screen(tmux: list[str], *options: str) -> str:
    done = subprocess.run([*tmux, "capture-pane", "-p", *options], check=True, capture_output=True, text=True)
    return done.stdout


def _until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"not within {DEADLINE_SECONDS:g} s: {what}")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
