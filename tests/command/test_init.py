"""`init`: a commented config for each preset that needs nothing but the app's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from server_adapters.registry import PRESETS
from supervisor import cli
from supervisor.commands.init import AFFINITY, render
from supervisor.config import Config, load

Run = Callable[..., Any]


@pytest.mark.parametrize("preset", PRESETS)
def test_what_it_writes_is_a_right_config_of_the_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preset: str
) -> None:
    """The file loads as it is, with four workers."""
    monkeypatch.chdir(tmp_path)
    assert cli.run(["init", "--preset", preset]) == 0
    config = load(tmp_path / "config.yaml")
    server = config.servers["main"]
    assert server.workers == 4
    assert server.affinity is not None
    assert server.affinity.preset == preset
    assert config.warnings == ()


@pytest.mark.parametrize("preset", PRESETS)
def test_the_values_it_shows_are_the_defaults(tmp_path: Path, preset: str) -> None:
    """But for the app, the workers and the affinity, leaving a line out changes nothing."""
    path = tmp_path / "config.yaml"
    path.write_text(render(preset))
    shown = load(path).servers["main"].model_dump(exclude={"affinity", "workers"})
    path.write_text("servers:\n  main:\n    app: server:app\n")
    assert shown == load(path).servers["main"].model_dump(exclude={"affinity", "workers"})


@pytest.mark.parametrize("preset", PRESETS)
def test_its_comments_are_right_too(tmp_path: Path, preset: str) -> None:
    """Each commented key can be taken into use as it stands."""
    text = render(preset)
    assert "{{" not in text
    live = []
    for line in text.splitlines():
        stripped = line.lstrip()
        live.append(line.replace("# ", "", 1) if _is_commented_key(stripped) else line)
    path = tmp_path / "config.yaml"
    path.write_text("\n".join(live) + "\n")
    config = load(path, {"SESSION_SECRET": "s"})
    assert isinstance(config, Config)
    assert config.servers["main"].health == "/healthz"


def _is_commented_key(line: str) -> bool:
    """A key that is commented out, not a sentence."""
    words = line.removeprefix("# ").removeprefix("- ").removeprefix("  ").split(" ")
    return (
        line.startswith("# ")
        and words[0].endswith(":")
        and not line.startswith(("# - ", "# app:"))  # another way to say `app`
        and "issue_cookie" not in line
    )


def test_every_preset_has_a_text_of_its_own() -> None:
    """A new preset needs one."""
    assert set(AFFINITY) == set(PRESETS)


def test_it_never_overwrites(run: Run, tmp_path: Path) -> None:
    """A file that is there is left as it is, a dangling link too."""
    path = tmp_path / "config.yaml"
    path.write_text("mine")
    done = run("init")
    assert done.status == 2
    assert "config.yaml: found a file of this name, expected none" in done.err
    assert path.read_text() == "mine"
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    assert run("init").status == 2
    assert not (tmp_path / "elsewhere").exists()


def test_an_unknown_preset_is_a_usage_error(run: Run, tmp_path: Path) -> None:
    """And nothing is written."""
    done = run("init", "--preset", "gym")
    assert done.status == 2
    assert "gym-resources" in done.err
    assert not (tmp_path / "config.yaml").exists()


def test_a_folder_that_cannot_be_written_is_said(run: Run) -> None:
    """No traceback where no file can be made."""
    done = run("init", cwd=Path("/proc"))
    assert done.status == 1
    assert "config.yaml: found" in done.err
    assert "unexpected" not in done.err
