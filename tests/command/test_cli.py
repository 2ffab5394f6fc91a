"""The command in real processes: exit statuses, help, and no traceback for what a user can mend."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor import cli
from supervisor.cli import COMMANDS

Run = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[2]

APP = "async def app(scope, receive, send): ...\n"


def test_help_names_each_command_with_its_purpose(run: Run) -> None:
    """`--help` lists what there is, in the order of a new user's path, and the exit statuses."""
    done = run("--help")
    assert done.status == 0
    listed = re.findall(r"^  (\w+)  +\S", done.out.partition("Commands:")[2], re.MULTILINE)
    assert listed[: len(COMMANDS)] == list(COMMANDS)
    assert listed[:4] == ["serve", "run", "check", "init"]
    assert "Exit status: 0 fine, 2 usage or config" in done.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    """Each command's help shows how it is called."""
    assert cli.run([command, "--help"]) == 0
    usage, _, rest = capsys.readouterr().out.partition("\n")
    assert usage.startswith(f"Usage: gym-supervise {command}")
    assert f"gym-supervise {command}" in rest or command == "demo"


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["serve"], ["status", "a", "b"], ["check", "x", "--frobnicate"], ["claims", "x", "--state", "odd"]],
)
def test_a_wrong_call_is_2_and_says_how_it_is_called(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    """Usage errors."""
    assert cli.run(arguments) == 2
    done = capsys.readouterr()
    assert done.out == ""
    assert "Usage: gym-supervise" in done.err


@pytest.mark.parametrize("command", ["serve", "check"])
def test_a_wrong_config_is_2_with_every_error_on_a_line(run: Run, tmp_path: Path, command: str) -> None:
    """Errors name the file as it was given."""
    (tmp_path / "c.yaml").write_text("servers:\n  a:\n    app: x\n    workers: 0\n")
    done = run(command, "c.yaml")
    assert (done.status, done.out) == (2, "")
    assert re.findall(r"^gym-supervise: c.yaml:(\d): servers.a.(\w+): found", done.err, re.MULTILINE) == [
        ("3", "app"),
        ("4", "workers"),
    ]
    assert "Traceback" not in done.err


@pytest.mark.parametrize("command", ["status", "claims", "stop"])
def test_commands_on_a_file_that_is_not_there_are_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    """A missing file is a config error, not a service that does not run."""
    assert cli.run([command, f"{tmp_path}/missing.yaml"]) == 2
    assert "missing.yaml: found nothing that can be read" in capsys.readouterr().err


def test_an_unexpected_error_is_one_line_with_a_hint(run: Run, tmp_path: Path) -> None:
    """A fault of ours has no traceback unless it is asked for; it ends with 1."""
    (tmp_path / "sitecustomize.py").write_text(
        "import supervisor.config\n"
        "def load(*_, **__):\n    raise ZeroDivisionError('boo')\n"
        "supervisor.config.load = load\n"
    )
    environment = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = run("check", "x.yaml", env=environment)
    assert (done.status, done.out) == (1, "")
    assert done.err.splitlines() == [
        "gym-supervise: unexpected ZeroDivisionError: boo",
        "gym-supervise: this is a fault in gym-supervise; `gym-supervise --debug check x.yaml` shows where",
    ]
    debug = run("--debug", "check", "x.yaml", env=environment)
    assert debug.status == 1
    assert "Traceback" in debug.err


def test_serve_status_claims_and_stop_work_together(run: Run, tmp_path: Path, serving: Callable[..., Any]) -> None:
    """A service from start to end, through the command alone."""
    config = tmp_path / "config.yaml"
    config.write_text(
        "name: whole\nruntime_dir: run\nservers:\n"
        f"  counter:\n    app: counter:app\n    chdir: {ROOT}/examples\n    bind: 127.0.0.1:0\n    workers: 2\n"
        "    affinity: {preset: gym-resources}\n    claims: {max_sessions: 100}\n"
    )
    service = serving(config)
    status = json.loads(run("status", str(config), "--json").out)
    server = status["servers"]["counter"]
    assert [worker["state"] for worker in server["workers"]] == ["ready", "ready"]
    assert re.fullmatch(r"127\.0\.0\.1:[1-9]\d+", server["bind"])
    assert status["supervisor"]["pid"] != service.pid, "the guardian's"
    seed = run_episode_seed(server["bind"])
    (claim,) = json.loads(run("claims", str(config), seed, "--json").out)
    assert (claim["state"], claim["session"]) == ("live", seed[:8])
    assert len(json.loads(run("claims", str(config), "--json").out)) == 1

    stopped = run("stop", str(config))
    assert (stopped.status, stopped.err) == (0, "")
    assert re.fullmatch(r"supervisor \d+ has stopped after \d+\.\d s\n", stopped.out)
    assert service.wait(10) == 0
    assert run("status", str(config)).status == 6
    assert run("stop", str(config)).status == 6


def run_episode_seed(bind: str) -> str:
    """Start a session over plain HTTP; its id, read from the cookie."""
    import base64
    import http.client

    host, _, port = bind.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    connection.request("POST", "/seed_session", '{"initial_count": 3}', {"content-type": "application/json"})
    reply = connection.getresponse()
    assert reply.status == 200, reply.read()
    cookie = reply.getheader("set-cookie") or ""
    connection.close()
    value = cookie.partition("=")[2].partition(".")[0].strip('"')
    return str(json.loads(base64.b64decode(value + "=" * (-len(value) % 4)))["session_id"])


SERVICE = "runtime_dir: run\nservers:\n  a:\n    app: app:app\n    bind: {bind}\n    boot_tries: 1\n{more}"


def test_serve_says_by_its_status_what_kept_it_from_serving(run: Run, tmp_path: Path) -> None:
    """3 an app that fails to boot, 4 an address or a runtime folder that is taken, 5 no shared memory."""
    config = tmp_path / "config.yaml"
    (tmp_path / "app.py").write_text("raise RuntimeError('the app is broken')\n")
    config.write_text(SERVICE.format(bind="127.0.0.1:0", more=""))
    boot = run("serve", str(config))
    assert boot.status == 3
    assert boot.err.count("Traceback (most recent call last)") == 1
    assert "the app is broken" in boot.err

    (tmp_path / "app.py").write_text(APP)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config.write_text(SERVICE.format(bind=f"127.0.0.1:{taken.getsockname()[1]}", more=""))
        assert run("serve", str(config)).status == 4

    config.write_text(SERVICE.format(bind="127.0.0.1:0", more="    claims: {max_sessions: 10000000}\n"))
    if os.statvfs("/dev/shm").f_bavail * os.statvfs("/dev/shm").f_frsize < 800 * 2**20:
        assert run("serve", str(config)).status == 5


def test_a_service_whose_secret_is_not_in_this_shell_can_be_stopped(
    run: Run, tmp_path: Path, serving: Callable[..., Any]
) -> None:
    """Status and stop need neither the variables of the config nor a right file."""
    config = tmp_path / "config.yaml"
    (tmp_path / "app.py").write_text(APP)
    config.write_text(SERVICE.format(bind="127.0.0.1:0", more="    env: {A: '${SECRET_OF_THE_TEST}'}\n"))
    service = serving(config, SECRET_OF_THE_TEST="x")
    assert run("status", str(config)).status == 0
    config.write_text(config.read_text() + "    workers: [oops]\n")
    assert run("stop", str(config)).status == 0
    assert service.wait(10) == 0
