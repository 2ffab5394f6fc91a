"""The player of episodes against real servers, right ones and wrong ones; the demo as a whole, also interrupted."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.commands import demo_sides
from supervisor.commands.episodes import Outcome, Tally, play
from supervisor.errors import SupervisorError

ROOT = Path(__file__).resolve().parents[2]

PREAMBLE = """\
import json, sys
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

async def refuse(request):
    return JSONResponse({"error": "session_gone"}, 410)

async def lie(request):
    return JSONResponse({"success": True, "count": 7, "reward": 0.0})
"""


@pytest.fixture
def uvicorn_app(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Serve an app on one plain uvicorn worker; returns its URL."""
    processes = []

    def start(code: str) -> str:
        (tmp_path / "the_app.py").write_text(PREAMBLE + code)
        log = tmp_path / "uvicorn.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "uvicorn", "the_app:app", "--app-dir", str(tmp_path), "--port", "0"],
                stdout=output,
                stderr=output,
            )
        processes.append(process)
        deadline = time.monotonic() + 30
        while (match := re.search(r"running on (http://\S+)", log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return match[1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize("pooled", [None, 7])
def test_episodes_against_one_right_server_are_all_right(tmp_path: Path, pooled: int | None) -> None:
    """With one worker nothing is lost, whatever the connections; each end is told once."""
    seen: list[Outcome] = []
    with demo_sides.plain(tmp_path, workers=1) as side:
        tally = asyncio.run(play(side.base_url, 40, pooled=pooled, steps=3, look=True, on_done=seen.append))
    assert (tally.right, tally.total) == (40, 40)
    assert sorted(outcome.number for outcome in seen) == list(range(40))


def test_two_plain_workers_lose_sessions_in_silence(tmp_path: Path) -> None:
    """The player sees the silent error: wrong states, no refusals."""
    with demo_sides.plain(tmp_path, workers=2) as side:
        tally = asyncio.run(play(side.base_url, 60, steps=4))
    assert tally.wrong > 0
    assert tally.refused == tally.failed == 0


def test_refusals_and_wrong_answers_are_told_apart(uvicorn_app: Callable[[str], str]) -> None:
    """A reply that says no is counted by its status and kind, one that lies as wrong."""
    url = uvicorn_app(
        "app = Starlette(routes=[Route('/{p}', lie, methods=['POST'])])\n"
        "refusing = Starlette(routes=[Route('/{p}', refuse, methods=['POST'])])\n"
        "app.mount('/refusing', refusing)\n"
    )
    lied = asyncio.run(play(url, 5))
    refused = asyncio.run(play(f"{url}/refusing", 5))
    assert lied == Tally(wrong=5)
    assert (refused.refused, dict(refused.reasons)) == (5, {"410 session_gone": 5})


def test_a_server_that_is_not_there_fails_every_episode() -> None:
    """Refused connections are failures with a reason, not exceptions."""
    tally = asyncio.run(play("http://127.0.0.1:1", 3))
    assert tally.failed == 3
    assert "ClientConnectorError" in next(iter(tally.reasons))


def test_a_side_that_does_not_start_shows_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo says why, and leaves no process."""
    monkeypatch.setattr(demo_sides, "counter_folder", lambda: tmp_path)
    (tmp_path / "counter.py").write_text("raise RuntimeError('no counter today')\n")
    with pytest.raises(SupervisorError, match="no counter today"), demo_sides.plain(tmp_path, workers=1):
        pass
    with pytest.raises(SupervisorError, match="no counter today"), demo_sides.supervised(tmp_path, workers=2):
        pass


def _of_demo(folder: Path) -> list[str]:
    """Processes and files that a demo whose TMPDIR is `folder` has at the moment."""
    found = [str(path) for path in folder.iterdir()]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if f"TMPDIR={folder}".encode() in environment.split(b"\0") and command:
                found.append(f"{entry.name} {command!r}")
    return found


def _demo(folder: Path, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "import gym_supervise; gym_supervise.main()", "demo"],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder), "COLUMNS": "120"} | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _wait_until(condition: Callable[[], Any]) -> None:
    """Return as soon as it holds: what a process does in its first moments is part of what is tested."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a short path, for sockets."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="gd-") as folder:
        yield Path(folder)


def test_the_demo_scores_200_of_200_and_says_how_to_go_on(short: Path) -> None:
    """The supervised side is right in every episode, the plain one is not, and nothing is left."""
    process = _demo(short)
    out, err = process.communicate(timeout=110)
    text = out.decode()
    assert process.returncode == 0, text + err.decode()
    plain = re.search(r"uvicorn --workers 4 +│ +(\d+) of 200", text)
    assert plain is not None
    assert int(plain[1]) < 150
    assert re.search(r"gym-supervise, 4 workers +│ +200 of 200 +│ +0 │ +0 │ +0 │", text)
    relayed = re.search(r"(\d+) of (\d+) requests came in at another worker", text)
    assert relayed is not None
    assert 0 < int(relayed[1]) < int(relayed[2]) == 600
    assert "gym-supervise init --preset gym-resources" in text
    assert _of_demo(short) == []


def _segments(folder: Path) -> list[str]:
    """The segments of the supervised side, once it has some."""
    noted = list(folder.glob("gym-supervise-demo-*/run/supervisor.json"))
    return [name[1:] for path in noted for name in json.loads(path.read_text())["segments"].values()]


@pytest.mark.parametrize("side", ["plain", "supervised"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing(short: Path, side: str, number: int) -> None:
    """Ctrl-C and TERM, while either side runs: every process, file and segment of it is gone."""
    process = _demo(short)
    try:
        if side == "plain":
            _wait_until(lambda: any("uvicorn" in one for one in _of_demo(short)))
        else:
            _wait_until(lambda: _segments(short))
        segments = _segments(short)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert err.decode().endswith("gym-supervise: interrupted\n")
    assert _of_demo(short) == []
    assert bool(segments) == (side == "supervised")
    assert not [name for name in os.listdir("/dev/shm") for segment in segments if segment in name]


def test_without_aiohttp_the_demo_says_what_to_install(short: Path, tmp_path: Path) -> None:
    """The missing extra is named before anything is started."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util\nfind = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'aiohttp' else find(name, *rest)\n"
    )
    process = _demo(short, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "found no package aiohttp; pip install 'gym-supervise[demo]'" in err.decode()
