"""What `run` makes of its command line, and what it says of a wrong one."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes.terminal import Terminal

from supervisor import cli
from supervisor.commands.run import configure
from supervisor.config import Config, locate
from supervisor.errors import ConfigError

Run = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[2]

SCRIPT = "import uvicorn\nasync def app(scope, receive, send): ...\nuvicorn.run(app, port=0, workers=2)\n"


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    (tmp_path / "my app.py").write_text(SCRIPT)
    return tmp_path / "my app.py"


def made(script: Path, *settings: str, name: str | None = None, **given: Any) -> Config:
    """The config of a command line."""
    return configure(str(script), ["--x", "1"], given, {"level": None}, name=name, settings=settings)


def test_options_are_the_keys_of_a_server(script: Path) -> None:
    """Also those without an option of their own; values are read as YAML."""
    config = made(
        script,
        "affinity.field=user_id",
        "timeouts.graceful_seconds=5",
        "uvicorn.root_path=/api",
        "env.DEBUG=1",
        "affinity.session_starts=[POST /begin]",
        preset="starlette-session",
        workers=3,
        bind=":9000",
        health="/up",
    )
    (name, server), *_ = config.servers.items()
    assert name == "my-app"
    assert server.script is not None
    assert (server.script.script, server.script.argv) == (script, ["--x", "1"])
    assert (server.chdir, server.workers, str(server.bind), server.health) == (script.parent, 3, "0.0.0.0:9000", "/up")
    assert server.affinity is not None
    assert server.affinity.options() == {
        "preset": "starlette-session",
        "field": "user_id",
        "session_starts": ["POST /begin"],
    }
    assert server.timeouts.graceful_seconds == 5
    assert server.uvicorn == {"root_path": "/api"}
    assert server.env == {"DEBUG": "1"}
    assert server.open_to_script == frozenset()


def test_other_commands_find_it_by_its_script_or_its_name(script: Path, tmp_path: Path) -> None:
    """Two scripts of one name in two folders are two services."""
    other = tmp_path / "other"
    other.mkdir()
    (other / script.name).write_text(SCRIPT)
    assert locate(str(script)).runtime_dirs[0] == made(script).runtime_dir
    assert locate(script.name).runtime_dirs[0] == made(script).runtime_dir
    assert made(other / script.name).runtime_dir != made(script).runtime_dir
    assert locate("mine").runtime_dirs[0] == made(script, name="mine").runtime_dir


@pytest.mark.parametrize(
    ("given", "settings", "expected"),
    [
        ({"workers": 0}, (), ["--workers: found 0, expected a whole number from 1 to 120"]),
        ({"bind": "nowhere"}, (), ["--bind: found 'nowhere', expected HOST:PORT"]),
        ({"preset": "gym"}, (), ["--preset: found 'gym', expected one of gym-resources"]),
        ({"preset": "starlette-session"}, (), ["--set affinity.field: found nothing, expected the key in"]),
        ({}, ("timeouts.graceful=5",), ["--set timeouts.graceful: found an unknown key, expected one of"]),
        ({}, ("uvicorn.port=5",), ["--set uvicorn.port: found a key that is refused here"]),
        ({"workers": 500, "bind": "x"}, ("nonsense=1",), ["--bind: found", "--workers: found 500", "--set nonsense: "]),
        ({"name": "-"}, (), ["--name: found '-', expected letters"]),
    ],
)
def test_wrong_values_are_named_by_their_options_all_at_once(
    script: Path, given: dict[str, Any], settings: tuple[str, ...], expected: list[str]
) -> None:
    """In the words of a config's errors."""
    with pytest.raises(ConfigError) as error:
        made(script, *settings, **given)
    assert len(error.value.problems) == len(expected)
    for text in expected:
        assert any(problem.startswith(text) for problem in error.value.problems), error.value.problems


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["absent.py"], "SCRIPT: found no file absent.py, expected a Python file that calls uvicorn"),
        (["."], "SCRIPT: found a folder ., expected a Python file"),
        (["--set", "workers", "my app.py"], "--set: found 'workers', expected KEY=VALUE"),
        (["--set", "affinity.field=x", "my app.py"], "found no preset to go with it, expected --preset"),
        (["--set", "workers=2", "--set", "workers.x=1", "my app.py"], "found a value for workers as well"),
        (["--frobnicate", "my app.py"], "No such option"),
        ([], "Missing argument 'SCRIPT'"),
    ],
)
def test_a_wrong_call_is_2(capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str) -> None:
    """And nothing is run."""
    assert cli.run(["run", *arguments]) == 2
    assert expected in capsys.readouterr().err


def test_several_workers_need_a_preset_and_one_is_proposed(run: Run, tmp_path: Path) -> None:
    """Also where the number is the script's own; in the command's own words."""
    done = run("run", "my app.py")
    assert done.status == 2
    assert "--preset: found nothing, expected an affinity with a preset, since workers is 2; presets are" in done.err
    (tmp_path / "gym.py").write_text(
        "import uvicorn\nfrom starlette.applications import Starlette\nfrom starlette.middleware import Middleware\n"
        "from starlette.middleware.sessions import SessionMiddleware\n"
        "app = Starlette(middleware=[Middleware(SessionMiddleware, secret_key='s', session_cookie='c')])\n"
        "uvicorn.run(app)\n"
    )
    done = run("run", "-w", "2", "gym.py")
    assert done.status == 2
    expected = "it looks like `--preset starlette-session --set affinity.field=KEY` (SessionMiddleware, cookie c)"
    assert expected in done.err


def test_a_script_that_cannot_be_served_is_3(run: Run, tmp_path: Path) -> None:
    """Its own traceback, once."""
    (tmp_path / "broken.py").write_text("def deep():\n    raise KeyError('mine')\ndeep()\n")
    done = run("run", "broken.py")
    assert done.status == 3
    assert done.err.count("Traceback") == done.err.count("KeyError: 'mine'") == 1
    assert 'broken.py", line 2, in deep' in done.err
    assert "supervisor/" not in done.err


@pytest.mark.parametrize("settings", [("tostop",), ("-tostop",)])
def test_in_a_terminal_its_script_can_be_asked(tmp_path: Path, settings: tuple[str, ...]) -> None:
    """What the script prints comes through, also where the terminal stops those who write in the background."""
    (tmp_path / "broken.py").write_text("print('hello')\nraise KeyError('mine')\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", "import gym_supervise; gym_supervise.main()", "run", "broken.py"]
    with Terminal(command, environment, *settings) as terminal:
        shown = terminal.read_all()
        assert terminal.wait(20) == 3
    assert "hello" in shown
    assert shown.count("KeyError: 'mine'") == 1


def test_ctrl_c_ends_the_asking(tmp_path: Path) -> None:
    """The script is a process of its own, and goes as well."""
    (tmp_path / "slow.py").write_text(
        "import os, time\nprint('pid', os.getpid(), 'end', flush=True)\ntime.sleep(1000)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", "import gym_supervise; gym_supervise.main()", "run", "slow.py"]
    with Terminal(command, environment) as terminal:
        shown = b""
        while b" end" not in shown:
            shown += os.read(terminal.descriptor, 4096)
        terminal.press(b"\x03")
        assert "gym-supervise: interrupted" in terminal.read_all()
        assert terminal.wait(20) == 1
    match = re.search(rb"pid (\d+) end", shown)
    assert match is not None
    assert not os.path.exists(f"/proc/{int(match[1])}/exe")
