"""`check`: imports the apps as workers would, shows what would run, and leaves everything as it was."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from server_adapters.likeness import Likeness
from supervisor.commands.check import clashes, unlike
from supervisor.commands.inspect_app import AppReport

Run = Callable[..., Any]

GYM_APP = """\
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.routing import Mount, Route

async def page(request): ...

app = Starlette(
    routes=[
        Route("/seed_session", page, methods=["POST"]),
        Route("/step", page, methods=["POST"]),
        Route("/verify", page, methods=["POST"]),
        Route("/aggregate_metrics", page, methods=["POST"]),
        Route("/", page),
        Mount("/deep", routes=[Route("/{name}", page, methods=["PUT"])]),
    ],
    middleware=[Middleware(SessionMiddleware, secret_key="hunter2", session_cookie="Counter___c")],
)
"""

CONFIG = """\
name: c
runtime_dir: run
servers:
  a:
    app: my_app:app
    workers: 2
    affinity: {affinity}
"""


def prepare(folder: Path, app: str, affinity: str = "{preset: gym-resources}") -> None:
    """An app and a config for it."""
    (folder / "my_app.py").write_text(app)
    (folder / "config.yaml").write_text(CONFIG.replace("{affinity}", affinity))


def test_it_shows_preset_cookie_and_what_each_route_does(run: Run, tmp_path: Path) -> None:
    """The secret is found, used and not shown."""
    prepare(tmp_path, GYM_APP)
    done = run("check", "config.yaml")
    assert (done.status, done.err) == (0, "")
    assert done.out == (
        f"c: sockets in {tmp_path}/run\n"
        "\n"
        "a: my_app:app on 127.0.0.1:8000, 2 workers, placement least_sessions\n"
        "  preset gym-resources, session cookie Counter___c; "
        "a claim ends 300 s after the last request of an ended session\n"
        "  POST /seed_session       starts a session\n"
        "  POST /step               may end its session, as its reply says\n"
        "  POST /verify             ends its session\n"
        "  POST /aggregate_metrics  keeps no state\n"
        "  GET /\n"
        "  PUT /deep/{name}\n"
        "config.yaml is right\n"
    )


def test_it_changes_nothing(run: Run, tmp_path: Path) -> None:
    """No bytecode, no runtime folder, no lifespan, no process of the app is left; its prints go to stderr."""
    prepare(
        tmp_path,
        "import os, subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "print('pid', child.pid, 'cwd', os.getcwd())\n" + GYM_APP,
    )
    before = sorted(path.name for path in tmp_path.iterdir())
    done = run("check", "config.yaml")
    assert done.status == 0
    assert "pid" not in done.out
    match = re.search(r"pid (\d+) cwd (.*)", done.err)
    assert match is not None
    assert match[2] == str(tmp_path)
    assert not os.path.exists(f"/proc/{match[1]}") or "sleep" not in Path(f"/proc/{match[1]}/cmdline").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("app", "expected"),
    [
        ("raise RuntimeError('broken')\n", "found an app that cannot be imported; its own error:\nTraceback"),
        ("import sys; sys.exit(3)\n", "found an app that cannot be imported; its own error:\nTraceback"),
        ("import os; os._exit(7)\n", "my_app:app: the process that imported it ended with 0"),
        ("other = 1\n", "found 'my_app:app', but my_app has no 'app'; it has other"),
        ("import nothing_like_it\n", "ModuleNotFoundError: No module named 'nothing_like_it'"),
    ],
)
def test_an_app_that_cannot_be_had_is_3_at_its_line(run: Run, tmp_path: Path, app: str, expected: str) -> None:
    """The place of the key, and what the app itself said."""
    prepare(tmp_path, app)
    done = run("check", "config.yaml")
    assert done.status == 3
    assert "gym-supervise: config.yaml:5: servers.a.app: " in done.err
    assert expected.replace("ended with 0", "ended with 7") in done.err
    assert "inspect_app.py" not in done.err


def test_an_app_without_its_middleware_is_a_config_error_that_names_the_keys(run: Run, tmp_path: Path) -> None:
    """A preset that finds no SessionMiddleware says which keys to give."""
    prepare(tmp_path, "async def app(scope, receive, send): ...\n")
    done = run("check", "config.yaml")
    assert done.status == 2
    assert "gym-supervise: config.yaml:7: servers.a.affinity.cookie: found" in done.err
    assert "give affinity.cookie (its session_cookie) and affinity.secret (its secret_key)" in done.err


def test_an_import_that_hangs_is_given_up_after_boot_seconds(run: Run, tmp_path: Path) -> None:
    """A slow import has its time, an endless one ends."""
    prepare(tmp_path, "import time\ntime.sleep(1000)\n")
    with (tmp_path / "config.yaml").open("a") as file:
        file.write("    timeouts: {boot_seconds: 0.5}\n")
    done = run("check", "config.yaml")
    assert done.status == 3
    assert "my_app:app was not imported within boot_seconds, which is 0.5" in done.err


def test_two_apps_with_one_cookie_and_secret_are_warned_of(run: Run, tmp_path: Path) -> None:
    """What the apps' own middleware says counts as much as the config."""
    prepare(tmp_path, GYM_APP)
    with (tmp_path / "config.yaml").open("a") as file:
        file.write("  b:\n    app: my_app:app\n    bind: :1\n    affinity: {preset: gym-resources}\n")
    done = run("check", "config.yaml")
    assert done.status == 0
    assert "warning: servers.b.affinity: the cookie Counter___c and its secret are those of server a too" in done.err
    assert "hunter2" not in done.err + done.out


def test_routes_that_the_app_does_not_have_are_warned_of(run: Run, tmp_path: Path) -> None:
    """A mistyped session end is seen before a session stays open for ever."""
    prepare(tmp_path, GYM_APP, "{preset: gym-resources, session_ends: [/verfy, /verify, PUT /deep/x]}")
    done = run("check", "config.yaml")
    assert done.status == 0
    assert done.err == "warning: servers.a: session_ends: the app has no route for POST /verfy\n"


def test_packages_of_the_app_with_names_of_ours_are_warned_of(run: Run, tmp_path: Path) -> None:
    """What a worker would import in place of the app's own, and what it would not."""
    prepare(tmp_path, GYM_APP)
    (tmp_path / "supervisor").mkdir()
    (tmp_path / "supervisor/__init__.py").touch()
    (tmp_path / "ops.py").touch()
    done = run("check", str(tmp_path / "config.yaml"), cwd=Path("/"))
    assert done.status == 0
    assert f"warning: {tmp_path}/supervisor: `import supervisor` in a worker finds gym-supervise's package" in done.err
    assert f"warning: {tmp_path}/ops.py: gym-supervise has a package ops too" in done.err


def test_our_own_checkout_is_no_clash() -> None:
    """Served from a checkout, the packages are ours themselves."""
    assert list(clashes(str(Path(__file__).resolve().parents[2]))) == []


MCP_APP = "from mcp.server import MCPServer\napp = MCPServer('x').streamable_http_app()\n"


def test_without_an_affinity_it_says_what_the_app_looks_like(run: Run, tmp_path: Path) -> None:
    """A line for one worker, and the error's remedy for several."""
    prepare(tmp_path, GYM_APP)
    config = tmp_path / "config.yaml"
    text = config.read_text()
    config.write_text(text.replace("    affinity: {preset: gym-resources}\n", "").replace("workers: 2", "workers: 1"))
    done = run("check", "config.yaml")
    expected = "`affinity: {preset: gym-resources}` (SessionMiddleware, cookie Counter___c, and the routes of a Gym"
    assert done.status == 0
    assert f"  for more than one worker: it looks like {expected} resources server)\n" in done.out
    config.write_text(text.replace("    affinity: {preset: gym-resources}\n", ""))
    done = run("check", "config.yaml")
    assert done.status == 2
    assert (
        "gym-supervise: config.yaml:4: servers.a.affinity: found nothing, expected an affinity with a preset, since "
        f"workers is 2; it looks like {expected}"
    ) in done.err


@pytest.mark.parametrize(
    ("likely", "preset", "expected"),
    [
        (["gym-resources", "starlette-session"], "none", "but the app looks like gym-resources (it does)"),
        (["gym-resources", "starlette-session"], "starlette-session", ""),
        (["gym-resources"], "custom", ""),
        (["unheard-of", "mcp"], "none", "but the app looks like mcp (it does): `affinity: {preset: mcp}`"),
        (["unheard-of"], "none", ""),
        ([], "none", ""),
    ],
)
def test_a_preset_that_the_app_does_not_look_like_is_warned_of(likely: list[str], preset: str, expected: str) -> None:
    """Only where the config has said it, and not for custom: the app may know better."""
    report = AppReport(preset=preset, given=True, likenesses=[Likeness(name, "it does") for name in likely])
    found = " ".join(unlike(report))
    assert bool(found) == bool(expected)
    assert expected in found
    assert not list(unlike(replace(report, given=False)))


def test_what_no_preset_mends_is_warned_of(run: Run, tmp_path: Path) -> None:
    """Beside a preset that the app does not look like."""
    prepare(tmp_path, MCP_APP, "{preset: none}")
    done = run("check", "config.yaml")
    assert done.status == 0
    assert "warning: servers.a: affinity.preset is none, but the app looks like mcp (an MCP endpoint" in done.err
    assert "warning: servers.a: MCP: subscriptions/listen hears only" in done.err


def test_a_script_is_checked_up_to_its_call(run: Run, tmp_path: Path) -> None:
    """Where it would serve and how; what comes after its call is not run."""
    script = GYM_APP + "if __name__ == '__main__':\n    import sys, uvicorn\n"
    script += "    uvicorn.run('script:app', port=int(sys.argv[1]), workers=3)\n    open('served', 'w')\n"
    (tmp_path / "script.py").write_text(script)
    config = tmp_path / "config.yaml"
    app = "servers:\n  a:\n    app: {script: script.py, argv: [81]}\n"
    config.write_text(app + "    affinity: {preset: gym-resources}\n")
    done = run("check", "config.yaml")
    assert (done.status, done.err) == (0, "")
    assert f"\na: script {tmp_path}/script.py on 127.0.0.1:81, 3 workers, placement least_sessions\n" in done.out
    assert "  bind and workers as the script says\n" in done.out
    assert "  POST /seed_session       starts a session\n" in done.out
    assert not (tmp_path / "served").exists()
    config.write_text(app)
    done = run("check", "config.yaml")
    assert done.status == 2
    assert (
        "config.yaml:2: servers.a.affinity: found nothing, expected an affinity with a preset, since workers"
        in done.err
    )
    (tmp_path / "script.py").write_text("raise KeyError('mine')\n")
    done = run("check", "config.yaml")
    assert done.status == 3
    assert "gym-supervise: config.yaml:3: servers.a.app: Traceback" in done.err
    assert done.err.count("KeyError: 'mine'") == 1
    assert "an address that it says itself" in done.out
