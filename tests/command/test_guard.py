"""The refusal where another distribution has overwritten the package `supervisor`, or comes before it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CALL = "import sys; sys.argv[1:] = ['--version']; import gym_supervise; gym_supervise.main()"


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder with supervisord's package and its metadata, as pip leaves them."""
    package = tmp_path / "supervisor"
    package.mkdir()
    (package / "__init__.py").write_text("# this is a package\n")
    metadata = tmp_path / "supervisor-4.2.5.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: supervisor\nVersion: 4.2.5\n")
    (metadata / "top_level.txt").write_text("supervisor\n")
    (metadata / "RECORD").write_text("supervisor/__init__.py,,\n")
    return tmp_path


def start(code: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Run code with these folders first on sys.path."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, cwd="/"
    )


def test_our_own_package_is_accepted() -> None:
    """Nothing in the way: the command runs."""
    done = start(CALL, ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("gym-supervise, version ")


def test_a_foreign_package_before_ours_is_refused_with_the_remedy(foreign: Path) -> None:
    """Its place and its distribution are named, and what to do; there is no traceback."""
    done = start(CALL, foreign, ROOT)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"found another package `supervisor` in {foreign}/supervisor/__init__.py" in done.stderr
    assert "which the distribution supervisor installs" in done.stderr
    assert "pip uninstall supervisor" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_overwritten_package_is_refused(tmp_path: Path) -> None:
    """Supervisord's __init__.py over ours: the rest of our files is there, and still nothing is started."""
    (tmp_path / "supervisor").mkdir()
    for entry in (ROOT / "supervisor").iterdir():
        if entry.name != "__init__.py":
            (tmp_path / "supervisor" / entry.name).symlink_to(entry)
    (tmp_path / "supervisor/__init__.py").write_text("#\n")
    done = start(CALL, tmp_path, ROOT)
    assert done.returncode == 1
    assert f"found another package `supervisor` in {tmp_path}" in done.stderr


def test_a_package_without_its_init_is_refused(tmp_path: Path) -> None:
    """After `pip uninstall supervisor` our __init__.py is gone with theirs; Python then sees a namespace package."""
    (tmp_path / "supervisor").mkdir()
    (tmp_path / "gym_supervise.py").symlink_to(ROOT / "gym_supervise.py")
    code = f"import sys; sys.path = [p for p in sys.path if p != {str(ROOT)!r}]; sys.meta_path = [f for f in sys.meta_path if 'editable' not in str(f).lower()]; "  # noqa: E501
    done = start(code + CALL, tmp_path)
    assert done.returncode == 1
    assert "package `supervisor`" in done.stderr
    assert "--force-reinstall" in done.stderr


def test_a_module_of_that_name_in_the_way_is_refused(tmp_path: Path) -> None:
    """A file supervisor.py of the user's own that cannot be imported is named, too."""
    (tmp_path / "supervisor.py").write_text("import nothing_of_this_name\n")
    done = start(CALL, tmp_path, ROOT)
    assert done.returncode == 1
    assert "found no package `supervisor` that can be imported" in done.stderr


def test_the_python_face_refuses_as_well(foreign: Path) -> None:
    """gym_supervise.serve raises instead of printing."""
    code = "import gym_supervise\ntry:\n  gym_supervise.serve('x')\nexcept RuntimeError as error:\n  print(error)\n"
    done = start(code, foreign, ROOT)
    assert done.returncode == 0
    assert "found another package `supervisor`" in done.stdout
