"""A script's life in its worker: before its call, in it, after it; reloads; boots that fail."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from scripts.runs import Run
from whole.harness import eventually

ALONE = ["--workers", "1", "--bind", "127.0.0.1:0"]
APP = """\
import json, os, sys, uvicorn
async def app(scope, receive, send):
    if scope['type'] != 'http':
        return
    body = json.dumps({key: scope[key] for key in ('root_path', 'path')} | FACTS).encode()
    await send({'type': 'http.response.start', 'status': 200, 'headers': []})
    await send({'type': 'http.response.body', 'body': body})
FACTS = {}
def note(word):
    with open('notes', 'a') as file:
        file.write(word + ' ')
"""

LIVES = {
    "uvicorn.run": "uvicorn.run(app, root_path='/api', timeout_keep_alive=9)\n",
    "its own loop": "import asyncio\nserver = uvicorn.Server(uvicorn.Config(app, root_path='/api'))\n"
    "async def main():\n    await asyncio.gather(server.serve(), watch())\n"
    "async def watch():\n    while not server.started: await asyncio.sleep(0.01)\n    FACTS['seen'] = True\n"
    "asyncio.run(main())\n",
}


@pytest.mark.parametrize("name", LIVES)
def test_it_lives_as_under_uvicorn(ran: Callable[..., Run], name: str) -> None:
    """Options hold; after a graceful end its SIGTERM handler runs, the call returns, the rest runs, then atexit."""
    text = (
        APP + "import atexit, signal, asyncio\natexit.register(note, 'atexit')\n"
        "signal.signal(signal.SIGTERM, lambda *_: note('term'))\n"
        "try:\n    BODY\n    note('after')\nfinally:\n    note('finally')\n"
    ).replace("BODY", LIVES[name].replace("\n", "\n    "))
    run = ran(ALONE, text, workers=1).start()
    if name == "its own loop":
        eventually(lambda: b'"seen"' in run.connect().ask("GET", "/")[2], "the script to see that it is started")
    status, _, body = run.connect().ask("GET", "/x")
    assert (status, json.loads(body)["root_path"]) == (200, "/api")
    assert run.stop() == 0
    assert (run.folder / "notes").read_text().split() == ["term", "after", "finally", "atexit"]


def test_config_and_options_come_before_the_script(ran: Callable[..., Run]) -> None:
    """Address, workers and uvicorn's options of the command line win; what they leave out is the script's."""
    said = "host='127.0.0.1', port=1, workers=7, root_path='/script', server_header=False, reload=True"
    text = f"{APP}uvicorn.run(app, {said})\n"
    run = ran([*ALONE, "--set", "uvicorn.root_path=/option"], text, workers=1).start()
    _, headers, body = run.connect().ask("GET", "/")
    assert json.loads(body)["root_path"] == "/option"
    assert "server" not in headers
    assert run.stop() == 0
    assert run.log.read_text().count("reload=True is not done: `gym-supervise reload` takes changed code") == 1
    (line,) = [line for line in run.log.read_text().splitlines() if '"GET ' in line]
    assert "app.0[" in line, "uvicorn's default log_config is ours to format"
    assert " owner=" in line


def test_its_logging_settings_hold_and_no_line_comes_twice(ran: Callable[..., Run]) -> None:
    """Uvicorn's default log_config is ours to format; one of the script's own is applied."""
    text = (
        APP + "from uvicorn.config import LOGGING_CONFIG\n"
        "LOGGING_CONFIG['formatters']['access']['fmt'] = 'MINE %(message)s'\n"
        "uvicorn.run(app)\n"
    )
    run = ran(ALONE, text, workers=1).start()
    run.connect().ask("GET", "/one")
    plain = ran(ALONE, APP + "uvicorn.run(app, log_level='warning')\n", workers=1).start()
    plain.connect().ask("GET", "/two")
    assert (run.stop(), plain.stop()) == (0, 0)
    lines = run.log.read_text().splitlines()
    assert [line.startswith("MINE ") for line in lines if "/one" in line] == [True]
    assert "/two" not in plain.log.read_text()
    assert "Started server process" not in plain.log.read_text()


def test_a_script_that_spawns_processes_of_its_own(ran: Callable[..., Run]) -> None:
    """A spawned child imports the script as its main module, in the script's folder, as under plain Python."""
    text = (
        "import multiprocessing, os\n" + APP + "def child(queue): queue.put((__name__, os.getcwd()))\n"
        "if __name__ == '__main__':\n    context = multiprocessing.get_context('spawn')\n"
        "    queue = context.Queue()\n    process = context.Process(target=child, args=(queue,))\n"
        "    process.start()\n    FACTS['child'] = queue.get()\n    process.join()\n    uvicorn.run(app)\n"
    )
    run = ran([*ALONE, "--set", "chdir=elsewhere"], text, workers=1)
    (run.folder / "elsewhere").mkdir()
    run.start()
    assert json.loads(run.connect().ask("GET", "/")[2])["child"] == ["__mp_main__", str(run.folder / "elsewhere")]
    assert run.stop() == 0


def test_a_reload_takes_the_changed_script(ran: Callable[..., Run]) -> None:
    """HUP runs it anew; a version that wants another address, or does not boot, changes nothing."""
    text = APP + "FACTS['version'] = 1\nuvicorn.run(app, host='127.0.0.1', port=0)\n"
    run = ran(["-w", "2", "--preset", "none"], text, workers=2).start()
    script = run.folder / "script.py"

    def version() -> int:
        return int(json.loads(run.connect().ask("GET", "/")[2])["version"])

    assert version() == 1
    script.write_text(text.replace("= 1", "= 2").replace("port=0", "port=1"))
    done = run.run("reload")
    assert done.returncode == 1
    assert "found 127.0.0.1:1 in the call of uvicorn, expected 127.0.0.1:0" in run.log.read_text()
    assert version() == 1
    script.write_text(text.replace("= 1", "= 3"))
    done = run.run("reload")
    assert done.returncode == 0, done.stderr
    eventually(lambda: version() == 3 and version() == 3, "the new version on all workers")
    assert run.stop() == 0


def test_a_server_that_the_script_ends_is_replaced(ran: Callable[..., Run]) -> None:
    """`server.should_exit` ends its worker gracefully, and the fleet puts another one there."""
    text = (
        APP + "server = uvicorn.Server(uvicorn.Config(app))\nimport signal\n"
        "def end(*_): server.should_exit = True\nsignal.signal(signal.SIGUSR2, end)\nserver.run()\nnote('after')\n"
    )
    run = ran(ALONE, text, workers=1).start()
    (pid,) = run.rows()
    os.kill(pid, signal.SIGUSR2)
    eventually(lambda: run.rows() and set(run.rows()) != {pid}, "a new worker")
    run.wait_ready()
    assert "the script has set should_exit: this worker stops" in run.log.read_text()
    assert (run.folder / "notes").read_text() == "after "
    assert run.stop() == 0


def test_a_boot_that_fails_is_3_and_said_once(ran: Callable[..., Run]) -> None:
    """With everything given there is no probe: it is the workers that find it out."""
    options = ["-w", "2", "--preset", "none", "--bind", "127.0.0.1:0", "--set", "boot_tries=1"]
    run = ran(options, APP + "def inner(): raise KeyError('mine')\ninner()\n").start(ready=False)
    assert run.wait() == 3
    log = run.log.read_text()
    assert "is run up to its call" not in log
    assert log.count("Traceback") == 1
    assert "in inner" in log
    assert "supervisor/" not in log


def test_a_second_call_is_refused_when_the_first_has_ended(ran: Callable[..., Run]) -> None:
    """A worker serves once; the service still ends well."""
    run = ran(ALONE, APP + "uvicorn.run(app)\nuvicorn.run(app, port=2)\n", workers=1).start()
    run.stop()
    assert "uvicorn is called a second time: a worker serves one app" in run.log.read_text()
    assert "Traceback" not in run.log.read_text()


def test_a_second_call_beside_the_first_is_the_scripts_affair(ran: Callable[..., Run]) -> None:
    """It raises there; the first one goes on, and no line changes its form or comes twice."""
    text = (
        APP + "import asyncio\nserver = uvicorn.Server(uvicorn.Config(app))\n"
        "async def second():\n    while not server.started: await asyncio.sleep(0.01)\n"
        "    try:\n        await uvicorn.Server(uvicorn.Config(app, port=2)).serve()\n"
        "    except RuntimeError as error:\n        FACTS['error'] = str(error)\n"
        "async def main():\n    await asyncio.gather(server.serve(), second())\nasyncio.run(main())\n"
    )
    run = ran(ALONE, text, workers=1).start()
    eventually(lambda: b"uvicorn is called a second time" in run.connect().ask("GET", "/")[2], "the refusal")
    run.connect().ask("GET", "/last")
    assert run.stop() == 0
    (line,) = [line for line in run.log.read_text().splitlines() if "/last" in line]
    assert "app.0[" in line


def test_a_server_that_the_script_cancels_is_replaced(ran: Callable[..., Run]) -> None:
    """It has served: that is no failed boot."""
    text = (
        APP + "import asyncio, signal\nserver = uvicorn.Server(uvicorn.Config(app))\n"
        "async def main():\n    task = asyncio.create_task(server.serve())\n"
        "    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, task.cancel)\n"
        "    await asyncio.wait([task])\nasyncio.run(main())\nsys.exit('cancelled')\n"
    )
    run = ran(ALONE, text, workers=1).start()
    (pid,) = run.rows()
    os.kill(pid, signal.SIGUSR2)
    eventually(lambda: run.rows() and set(run.rows()) != {pid}, "a new worker")
    run.wait_ready()
    assert "failed to boot" not in run.log.read_text()
    assert "\ncancelled\n" in run.log.read_text()
    assert run.stop() == 0


def test_a_script_that_fails_after_it_has_served_says_so(ran: Callable[..., Run]) -> None:
    """Once, with its own traceback; it is no failed boot."""
    run = ran(ALONE, APP + "uvicorn.run(app)\nraise KeyError('late')\n", workers=1).start()
    assert run.stop() == 0
    log = run.log.read_text()
    assert "the script failed after its app had been served" in log
    assert log.count("KeyError: 'late'") == 1
    assert "supervisor/worker" not in log


def test_a_config_may_leave_address_and_workers_to_the_script(ran: Callable[..., Run], tmp_path: Path) -> None:
    """`serve` asks it once at the start; a reload keeps the answer, and takes the script anew."""
    text = (
        APP + "FACTS['v'] = sys.argv[1]\n"
        "if __name__ == '__main__': uvicorn.run('script:app', host='127.0.0.1', port=0, workers=2)\n"
    )
    run = ran([], text, workers=2)
    data = {
        "name": "app",
        "servers": {"app": {"app": {"script": "script.py", "argv": [8]}, "affinity": {"preset": "none"}}},
    }
    config = run.folder / "config.yaml"
    config.write_text(json.dumps(data))
    run.command = [run.command[0], "serve", str(config)]
    run.start()
    assert run.connect().ask("GET", "/")[0] == 200
    assert run.log.read_text().count("is run up to its call of uvicorn: nothing else says bind and workers") == 1
    assert run.run("reload").returncode == 0
    assert run.log.read_text().count("is run up to its call of uvicorn") == 1
    assert run.stop() == 0
