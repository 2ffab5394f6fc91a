"""The runtime folder: whose it may be, who has it, and what a crash left in it."""

from __future__ import annotations

import json
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes.harness import run_python

from supervisor.errors import BindError
from supervisor.runtime_dir import RuntimeDir

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder to somebody else needs root")
NOBODY = 65534


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder of ours with a short path."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def mode(path: Path) -> int:
    """A file's permissions."""
    return stat.S_IMODE(path.lstat().st_mode)


def test_it_is_made_with_its_parents(short: Path) -> None:
    """Each of them for this user alone, whatever the umask; the lock stays when it is given back."""
    before = os.umask(0)
    try:
        folder = RuntimeDir(str(short / "a" / "b"))
    finally:
        os.umask(before)
    assert mode(short / "a") == mode(short / "a" / "b") == 0o700
    assert mode(short / "a" / "b" / "lock") == 0o600
    assert (short / "a" / "b" / "lock").read_text() == f"{os.getpid()}\n"
    folder.close()
    assert os.listdir(short / "a" / "b") == ["lock"]


def test_one_that_others_may_read_is_closed_to_them(short: Path) -> None:
    """Systemd's RuntimeDirectory= has mode 0755 unless told otherwise."""
    (short / "run").mkdir(mode=0o755)
    RuntimeDir(str(short / "run")).close()
    assert mode(short / "run") == 0o700


def test_one_that_others_may_write_is_refused(short: Path) -> None:
    """Somebody may have put something in it already."""
    (short / "run").mkdir()
    (short / "run").chmod(0o770)
    with pytest.raises(BindError, match="found mode 0770, expected 0700"):
        RuntimeDir(str(short / "run"))


def test_a_link_is_refused(short: Path) -> None:
    """It could be turned to somewhere else later; so could one in the middle of a path below /tmp."""
    (short / "real").mkdir(mode=0o700)
    (short / "run").symlink_to("real")
    with pytest.raises(BindError, match="found a link"):
        RuntimeDir(str(short / "run"))
    everybodys = short / "tmp"
    everybodys.mkdir()
    everybodys.chmod(0o1777)
    (everybodys / "gym").symlink_to(short / "real")
    with pytest.raises(BindError, match=f"{everybodys}/gym: found a link"):
        RuntimeDir(str(everybodys / "gym" / "run"))


def test_a_file_is_refused(short: Path) -> None:
    """In the folder's place."""
    (short / "run").write_text("")
    with pytest.raises(BindError, match="found no folder"):
        RuntimeDir(str(short / "run"))


@needs_root
def test_somebody_elses_is_refused(short: Path) -> None:
    """The folder itself, and the one above it where everybody can make folders."""
    everybodys = short / "tmp"
    everybodys.mkdir()
    everybodys.chmod(0o1777)
    (everybodys / "gym").mkdir(mode=0o700)
    os.chown(everybodys / "gym", NOBODY, NOBODY)
    with pytest.raises(BindError, match=f"found a folder of user {NOBODY}"):
        RuntimeDir(str(everybodys / "gym"))
    with pytest.raises(BindError, match=f"{everybodys}/gym: found a folder of user {NOBODY}"):
        RuntimeDir(str(everybodys / "gym" / "run"))


def test_a_folder_that_cannot_be_made(short: Path) -> None:
    """The system's reason is told."""
    (short / "file").write_text("")
    with pytest.raises(BindError, match="Not a directory"):
        RuntimeDir(str(short / "file" / "run"))


def test_what_a_crash_left_is_removed_and_nothing_else(short: Path) -> None:
    """Sockets of ours and supervisor.json; not a file of somebody's, whatever its name."""
    for name in ("control.sock", "app.7.sock", "other.sock"):
        with socket.socket(socket.AF_UNIX) as crashed:
            crashed.bind(str(short / name))
    (short / "app.8.sock").write_text("a file")
    (short / "supervisor.json").write_text("{}")
    (short / ".supervisor.json.ab12cd34").write_text("{")
    (short / "notes.txt").write_text("mine")
    folder = RuntimeDir(str(short))
    assert sorted(os.listdir(short)) == ["app.8.sock", "lock", "notes.txt", "other.sock"]
    folder.close()


def test_it_is_locked_until_it_is_closed(short: Path) -> None:
    """Against other processes, with the holder's pid in the message; a forked child does not keep it locked."""
    code = """
        import sys
        from supervisor.errors import BindError
        from supervisor.runtime_dir import RuntimeDir
        try:
            RuntimeDir(sys.argv[1]).close()
            print("free")
        except BindError as error:
            print(error)
        """
    folder = RuntimeDir(str(short / "run"))
    # By another process: closing any descriptor of the file here would drop the lock.
    run_python("import sys; open(sys.argv[1], 'w').write('1')", str(short / "run" / "lock"))
    assert f"another supervisor, pid {os.getpid()}" in run_python(code, str(short / "run")).stdout
    folder.close()
    assert run_python(code, str(short / "run")).stdout == "free\n"


def test_the_state_is_written_in_one_step(short: Path) -> None:
    """For this user alone, and nothing half-written stays when it cannot be."""
    folder = RuntimeDir(str(short))
    folder.write_state({"pid": 7})
    assert json.loads((short / "supervisor.json").read_text()) == {"pid": 7}
    assert mode(short / "supervisor.json") == 0o600
    with pytest.raises(TypeError):
        folder.write_state({"pid": object()})
    assert sorted(os.listdir(short)) == ["lock", "supervisor.json"]
    folder.close()


def test_a_path_that_gets_too_long_is_refused_at_the_start(short: Path) -> None:
    """Private sockets have at most 107 bytes of path; the error names the limit instead of a crash at every boot."""
    folder = RuntimeDir(str(short / ("x" * (80 - len(str(short))))))
    folder.check_names(["app"])
    with pytest.raises(BindError, match="at most 107, Linux's limit"):
        folder.check_names(["app", "a-server-with-a-long-name"])
    folder.close()
