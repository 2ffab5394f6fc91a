"""Whether a log-out takes a service's shared memory away, and who is told so."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor import serve
from supervisor.commands.serve import run_file
from supervisor.logs import lines as logs
from supervisor.processes import lingering

PERSON = 54321


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with logind on which nobody lingers."""
    (tmp_path / "run/systemd/seats").mkdir(parents=True)
    (tmp_path / "var/lib/systemd/linger").mkdir(parents=True)
    (tmp_path / "etc/systemd/logind.conf.d").mkdir(parents=True)
    return tmp_path


def test_a_person_is_told_how_to_linger(root: Path) -> None:
    """With the command to run."""
    assert f"`loginctl enable-linger {PERSON}`" in (lingering.advice(PERSON, root) or "")


def test_system_users_are_left_alone_by_logind(root: Path) -> None:
    """The border is login.defs', else systemd's own."""
    assert lingering.advice(0, root) is None
    assert lingering.advice(999, root) is None
    assert lingering.advice(1000, root) is not None
    (root / "etc/login.defs").write_text("# SYS_UID_MAX 5\nSYS_UID_MIN 100\nSYS_UID_MAX\t\t 60000\n")
    assert lingering.advice(PERSON, root) is None


def no_logind(root: Path) -> None:
    """As in a container."""
    (root / "run/systemd/seats").rmdir()


def lingers(root: Path) -> None:
    """As `loginctl enable-linger` leaves it."""
    (root / "var/lib/systemd/linger" / str(PERSON)).touch()


def kept(root: Path) -> None:
    """RemoveIPC is off."""
    (root / "etc/systemd/logind.conf").write_text("[Login]\n#RemoveIPC=yes\nRemoveIPC=no\n")


def kept_by_a_drop_in(root: Path) -> None:
    """The drop-in has the last word."""
    (root / "etc/systemd/logind.conf").write_text("[Login]\nRemoveIPC=yes\n")
    (root / "etc/systemd/logind.conf.d/ipc.conf").write_text("[Login]\nRemoveIPC=off\n")


@pytest.mark.parametrize("change", [no_logind, lingers, kept, kept_by_a_drop_in])
def test_nothing_is_said_where_nothing_is_removed(root: Path, change: Callable[[Path], None]) -> None:
    """No logind, a user who lingers, or RemoveIPC switched off."""
    change(root)
    assert lingering.advice(PERSON, root) is None


def test_serve_says_it_at_its_start(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Before the service runs, as a warning in the log."""
    config = root / "c.yaml"
    config.write_text("servers: {a: {app: 'x:y', chdir: .}}\n")
    monkeypatch.setattr(lingering, "advice", lambda uid: f"user {uid}: linger")
    monkeypatch.setattr(serve, "run", lambda config: 0)
    assert run_file(config) == 0
    logs.shut_down()
    assert (
        f"WARNING  guardian[{os.getpid()}] gym_supervise.config: user {os.getuid()}: linger" in capfd.readouterr().err
    )
