"""Finding a service in the folders where it may run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from ops import service
from supervisor.runtime_dir import RuntimeDir

STATE = {"guardian": None, "started_at": 1.5, "version": "1", "segments": {"a": "/gsv-none"}}


def test_a_living_service_comes_before_a_dead_one(tmp_path: Path) -> None:
    """A crash under one folder does not hide the service that runs under another."""
    dead, alive = tmp_path / "dead", tmp_path / "alive"
    dead.mkdir()
    (dead / "supervisor.json").write_text(json.dumps(STATE | {"pid": 1}))
    assert service.find([tmp_path / "nothing"]) is None
    found = service.find([tmp_path / "nothing", dead, alive])
    assert found is not None
    assert (found.runtime_dir, found.state) == (dead, "dead")

    code = (
        "import sys\nfrom supervisor.runtime_dir import RuntimeDir\n"
        "import os\nruntime = RuntimeDir(sys.argv[1])\n"
        f"runtime.write_state({STATE!r} | {{'pid': os.getpid()}})\n"
        "print('held', flush=True)\nsys.stdin.read()\n"
    )
    root = Path(__file__).resolve().parents[2]
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(alive)],
        env=os.environ | {"PYTHONPATH": str(root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        found = service.find([dead, alive])
        assert found is not None
        assert (found.runtime_dir, found.state, found.supervisor_pid) == (alive, "running", holder.pid)
        assert found.holds_lock(holder.pid)
        assert not found.holds_lock(holder.pid + 1)


def test_a_broken_state_file_is_no_service(tmp_path: Path) -> None:
    """What is not JSON, or no object, says nothing."""
    for text in ("", "{", "[1]", "null"):
        (tmp_path / "supervisor.json").write_text(text)
        assert service.read(tmp_path) is None


def test_a_guardian_is_only_believed_where_it_is_the_parent(tmp_path: Path) -> None:
    """A pid in the file may be anybody's by now; `stop` would wait for it."""
    runtime = RuntimeDir(str(tmp_path / "run"))
    try:
        runtime.write_state(STATE | {"pid": os.getpid(), "guardian": 1 if os.getppid() != 1 else 2})
        code = (
            "import sys\nfrom pathlib import Path\nfrom ops import service\n"
            "found = service.read(Path(sys.argv[1]))\nprint(found.state, found.guardian_pid)\n"
        )

        def seen() -> str:
            root = str(Path(__file__).resolve().parents[2])
            environment = os.environ | {"PYTHONPATH": root}
            arguments = [sys.executable, "-c", code, str(tmp_path / "run")]
            return subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=60).stdout

        assert seen() == "running None\n"
        runtime.write_state(STATE | {"pid": os.getpid(), "guardian": os.getppid()})
        assert seen() == f"running {os.getppid()}\n"
    finally:
        runtime.close()
