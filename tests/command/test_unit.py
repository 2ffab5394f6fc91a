"""`gym-supervise unit`: what it prints. That a real systemd takes it is tested in tests/systemd."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ops import units
from supervisor import cli

ROOT = Path(__file__).resolve().parents[2]

Print = Callable[..., dict[str, list[str]]]


@pytest.fixture
def printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Print:
    """The keys of the unit that is printed for a config, each with its values."""

    def printed(text: str, *options: str, file: str = "c.yaml") -> dict[str, list[str]]:
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        status = cli.run(["unit", str(path), *options])
        done = capsys.readouterr()
        assert status == 0, done.err
        found: dict[str, list[str]] = {"stderr": done.err.splitlines()}
        for line in done.out.splitlines():
            if line and line[0] not in "#[":
                key, _, value = line.partition("=")
                found.setdefault(key, []).append(value)
        return found

    return printed


def config(server: str = "", top: str = "") -> str:
    """A config with one server."""
    return f"{top}\nservers:\n  app:\n    app: x:y\n{server}"


def test_the_repositorys_files_are_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """The template for /opt, and the same for wherever this command is."""
    at_home = units.template(("/opt/gym-supervise/bin/gym-supervise",), "gym-supervise")
    assert (ROOT / "ops/systemd/gym-supervise@.service").read_text() == units.service(at_home)
    assert (ROOT / "ops/systemd/gym-supervise@.socket").read_text() == units.template_socket()
    assert cli.run(["unit", "--template", "--user", "gym-supervise"]) == 0
    here = os.path.join(sys.prefix, "bin", "gym-supervise")
    assert capsys.readouterr().out.replace(here, at_home.command[0]) == units.service(at_home)


def test_what_every_unit_has(printed: Print, tmp_path: Path) -> None:
    """The lines without which a crash, a kill or a log-out does harm."""
    unit = printed(config(), "--user", "nobody")
    assert unit["Type"] == ["notify"]
    assert unit["NotifyAccess"] == ["all"]
    assert unit["ExecStart"] == [f"{sys.prefix}/bin/gym-supervise serve {tmp_path}/c.yaml"]
    assert unit["ExecReload"] == [f"{sys.prefix}/bin/gym-supervise reload {tmp_path}/c.yaml"]
    assert unit["KillMode"] == ["mixed"]
    assert unit["OOMPolicy"] == ["continue"]
    assert unit["LimitNOFILE"] == ["524288"]
    assert unit["RemoveIPC"] == ["no"]
    assert unit["RestartPreventExitStatus"] == ["2 3"]
    assert unit["RuntimeDirectory"] == ["gym-supervise/c"]
    assert unit["RuntimeDirectoryMode"] == ["0700"]
    assert unit["User"] == ["nobody"]
    assert float(unit["WatchdogSec"][0]) > 10


def test_a_stop_has_more_time_than_the_config_gives_it(printed: Print) -> None:
    """Of several servers the slowest counts."""
    other = "  other:\n    app: x:y\n    bind: 127.0.0.1:8001\n    timeouts: {graceful_seconds: 99.5}\n"
    assert printed(config("    timeouts: {graceful_seconds: 7}\n" + other))["TimeoutStopSec"] == ["130"]


@pytest.mark.parametrize(
    ("runtime_dir", "made", "writable"),
    [
        ("/run/elsewhere/x", ["elsewhere/x"], None),
        ("/srv/not/there", None, "/srv/not"),
        ("/var", None, "/var"),
    ],
)
def test_a_runtime_folder_of_the_configs_own(
    printed: Print, runtime_dir: str, made: list[str] | None, writable: str | None
) -> None:
    """Systemd makes those below /run; others have to be writable."""
    unit = printed(config(top=f"runtime_dir: {runtime_dir}"))
    assert unit.get("RuntimeDirectory") == made
    assert writable is None or writable in unit["ReadWritePaths"][0].split()


def test_what_the_environment_has_to_bring(printed: Print, monkeypatch: pytest.MonkeyPatch) -> None:
    """A config that takes variables gets a file for them, and the variables are named; values never are."""
    monkeypatch.setenv("COOKIE_SECRET", "hush")
    affinity = "    affinity: {preset: gym-resources, cookie: c, secret: '${COOKIE_SECRET}'}\n"
    unit = printed(config(affinity + "    env: {S: '${STATE_DIRECTORY}'}\n"))
    assert unit["EnvironmentFile"] == ["/etc/gym-supervise/c.env"]
    assert "hush" not in str(unit)
    assert "EnvironmentFile" not in printed(config())


@pytest.mark.parametrize(
    ("bind", "key", "value"),
    [
        ("127.0.0.1:8000", "CapabilityBoundingSet", [""]),
        ("127.0.0.1:80", "AmbientCapabilities", ["CAP_NET_BIND_SERVICE"]),
        (":8000", "After", ["network.target"]),
        ("10.1.2.3:8000", "After", ["network.target", "network-online.target"]),
        ("systemd:web", "Requires", ["gym-supervise-c.socket"]),
        ("systemd:web", "Sockets", ["gym-supervise-c.socket"]),
        ("unix:/srv/web/x.sock", "ReadWritePaths", None),
    ],
)
def test_what_a_bind_needs(printed: Print, bind: str, key: str, value: list[str] | None) -> None:
    """A low port its capability, an address of the network the network, a socket its unit, a Unix socket its folder."""
    unit = printed(config(f"    bind: '{bind}'\n"))
    if value is None:
        assert "/srv/web" in unit[key][0].split()
    else:
        assert unit[key] == value


def test_paths_with_everything_that_systemd_takes_for_something_else(printed: Print, tmp_path: Path) -> None:
    """Specifiers, variables, spaces and quotes."""
    unit = printed(config(top="name: x"), file='a b/50%"$HOME.yaml')
    folder = str(tmp_path).replace("%", "%%")
    assert unit["ExecStart"][0].endswith(f' serve "{folder}/a b/50%%\\"$$HOME.yaml"')


def test_a_writable_folder(printed: Print) -> None:
    """Repeatable; quoted where it has to be."""
    paths = printed(config(), "--writable", "/srv/one", "--writable", "/srv/two words")["ReadWritePaths"]
    assert paths[0].startswith('/srv/one "/srv/two words"')


def test_homes_and_temporary_folders_that_are_needed_stay_visible(
    printed: Print, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment in a home, a config below /tmp."""
    monkeypatch.setattr(sys, "prefix", "/home/me/venv")
    assert printed(config())["ProtectHome"] == ["read-only"]
    hidden = units.ServicePlan("n", "u", ("/x",), "/c.yaml", None, "s")
    assert "ProtectHome=yes\nPrivateTmp=yes\n" in units.service(hidden)


def test_sockets(printed: Print, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One unit for each NAME, and the service wants all of them."""
    text = config("    bind: systemd:a\n  other:\n    app: x:y\n    bind: systemd:b/c\n")
    assert printed(text)["Sockets"] == ["gym-supervise-c-a.socket gym-supervise-c-b-c.socket"]
    unit = printed(text, "--socket", "127.0.0.1:9000", "--bind", "b/c")
    assert (unit["ListenStream"], unit["FileDescriptorName"]) == (["127.0.0.1:9000"], ["b/c"])
    assert unit["Service"] == ["gym-supervise-c.service"]


@pytest.mark.parametrize(
    ("bind", "options", "said"),
    [
        ("systemd:a", ["--socket", "over there"], "expected a port"),
        ("systemd:a", ["--socket", "80", "--bind", "b"], "expected one of a"),
        ("127.0.0.1:1", ["--socket", "80"], "write `bind: systemd:main`"),
        ("127.0.0.1:1", ["--template"], "--template takes --user only"),
    ],
)
def test_what_cannot_be_printed_is_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, bind: str, options: list[str], said: str
) -> None:
    """With what was found and expected."""
    (tmp_path / "c.yaml").write_text(config(f"    bind: {bind}\n"))
    assert cli.run(["unit", str(tmp_path / "c.yaml"), *options]) == 2
    done = capsys.readouterr()
    assert said in done.err
    assert done.out == ""


def test_several_sockets_have_to_be_told_apart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """--bind is asked for."""
    (tmp_path / "c.yaml").write_text(config("    bind: systemd:a\n  other:\n    app: x:y\n    bind: systemd:b\n"))
    assert cli.run(["unit", str(tmp_path / "c.yaml"), "--socket", "80"]) == 2
    assert "--bind and one of a, b" in capsys.readouterr().err


def test_without_a_config_the_usage_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    """CONFIG or --template."""
    assert cli.run(["unit"]) == 2
    assert "or --template" in capsys.readouterr().err


def test_a_user_that_is_not_there_is_named(printed: Print) -> None:
    """With the command that makes one."""
    assert re.search(
        "no user gsv-nobody yet: useradd --system", str(printed(config(), "--user", "gsv-nobody")["stderr"])
    )


def test_a_descriptor_that_nobody_passes_is_named(printed: Print) -> None:
    """`fd://` is for other launchers."""
    assert "systemd:NAME" in str(printed(config("    bind: fd://3\n"), "--user", "nobody")["stderr"])


def test_a_script_that_says_its_address_itself_is_named(printed: Print, tmp_path: Path) -> None:
    """What a unit has to allow depends on the address."""
    (tmp_path / "script.py").write_text("")
    text = config().replace("x:y", "{script: script.py}")
    notes = [line for line in printed(text)["stderr"] if "app: " in line]
    assert len(notes) == 1
    assert "where it listens is its script's affair; give `bind`" in notes[0]
    assert [line for line in printed(text + "    bind: :80\n")["stderr"] if "app: " in line] == []
