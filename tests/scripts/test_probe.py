"""What is learnt of a script before there is a worker: each way to call uvicorn, and each way not to."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.config import LogConfig, ServerConfig, load
from supervisor.errors import ConfigError
from supervisor.scripts.asking import Answer, ask, complete

APP = "import uvicorn, sys, os\nasync def app(scope, receive, send): ...\n"
MAIN = APP + "if __name__ == '__main__':\n    "

Asked = Callable[..., Answer]


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    """Write a script into the test's folder and ask it."""

    def asked(text: str, *argv: str, **server: Any) -> Answer:
        script = tmp_path / "script.py"
        script.write_text(text)
        data = {"app": {"script": script, "argv": list(argv)}, "chdir": tmp_path, **server}
        return ask("a", ServerConfig.model_validate(data), LogConfig(level="error"))

    return asked


CALLS = {
    "uvicorn.run": (MAIN + "uvicorn.run(app, host='::1', port=9001)", "[::1]:9001", 1),
    "its defaults": (MAIN + "uvicorn.run(app)", "127.0.0.1:8000", 1),
    "imported run": ("from uvicorn import run\n" + MAIN + "run(app, port=9002)", "127.0.0.1:9002", 1),
    "run of the module": (
        "from uvicorn.main import run\n" + MAIN + "run('script:app', port=9003, workers=2)",
        "127.0.0.1:9003",
        2,
    ),
    "every address": (MAIN + "uvicorn.run(app, host='0.0.0.0', port=0)", "0.0.0.0:0", 1),
    "no host": (MAIN + "uvicorn.run(app, host='', port=9004)", "0.0.0.0:9004", 1),
    "a Unix socket": (MAIN + "uvicorn.run(app, uds='x.sock')", "unix:FOLDER/x.sock", 1),
    "a descriptor": (MAIN + "uvicorn.run(app, fd=7)", "fd://7", 1),
    "workers": (MAIN + "uvicorn.run('script:app', port=9005, workers=3)", "127.0.0.1:9005", 3),
    "WEB_CONCURRENCY": (MAIN + "os.environ['WEB_CONCURRENCY'] = '5'; uvicorn.run('script:app')", "127.0.0.1:8000", 5),
    "reload": (MAIN + "uvicorn.run('script:app', port=9006, reload=True)", "127.0.0.1:9006", 1),
    "Server.run": (MAIN + "uvicorn.Server(uvicorn.Config(app, port=9007)).run()", "127.0.0.1:9007", 1),
    "changed Config": (
        MAIN + "c = uvicorn.Config(app); c.port = 9008; c.workers = 2; uvicorn.Server(c).run()",
        "127.0.0.1:9008",
        2,
    ),
    "Server.serve": (
        "import asyncio\n" + MAIN + "asyncio.run(uvicorn.Server(uvicorn.Config(app, port=9009)).serve())",
        "127.0.0.1:9009",
        1,
    ),
    "async main": (
        "import asyncio\n" + APP + "async def main():\n    await asyncio.sleep(0)\n"
        "    await uvicorn.Server(uvicorn.Config(app, port=9010)).serve()\n"
        "asyncio.run(main())",
        "127.0.0.1:9010",
        1,
    ),
    "a Server of its own": (
        APP + "class Mine(uvicorn.Server):\n"
        "    async def serve(self, sockets=None):\n        await super().serve(sockets)\n"
        "Mine(uvicorn.Config(app, port=9011)).run()",
        "127.0.0.1:9011",
        1,
    ),
    "uvicorn's own command": (MAIN + "uvicorn.main(['script:app', '--port', '9012'])", "127.0.0.1:9012", 1),
    "argv": (MAIN + "uvicorn.run(app, port=int(sys.argv[2]))", "127.0.0.1:9013", 1),
    "catches everything": (
        MAIN
        + "\n    try:\n        uvicorn.run(app, port=9014)\n    except Exception:\n        uvicorn.run(app, port=1)",
        "127.0.0.1:9014",
        1,
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_each_way_to_call_uvicorn_says_where_and_how_many(asked: Asked, tmp_path: Path, name: str) -> None:
    """As uvicorn itself would have understood it."""
    text, bind, workers = CALLS[name]
    answer = asked(text, "--port", "9013")
    assert answer == Answer(bind=bind.replace("FOLDER", str(tmp_path)), workers=workers, proposal=answer.proposal)


THREAD = (
    "import threading\n"
    + APP
    + "t = threading.Thread(target=uvicorn.run, args=(app,), daemon=True)\nt.start()\nthreading.Event().wait()"
)
FAILURES = {
    "never": (APP, "it has come to its end without a call of uvicorn.run or Server.serve"),
    "sys.exit": (MAIN + "sys.exit('no')", "it has called sys.exit('no') before it called uvicorn"),
    "help": (
        "from argparse import *\n" + MAIN + "ArgumentParser().parse_args(['--help'])",
        "script.py: it has called sys.exit(0) before it called uvicorn",
    ),
    "argparse": (
        "import argparse\n"
        + MAIN
        + "p = argparse.ArgumentParser(); p.add_argument('--n', required=True); p.parse_args()",
        "it has called sys.exit(2) before it called uvicorn",
    ),
    "raises": (MAIN + "raise KeyError('mine')", "KeyError: 'mine'"),
    "syntax": ("def broken(:\n", 'script.py", line 1\n    def broken(:'),
    "import": ("import no_such_module\n", "No module named 'no_such_module'"),
    "os._exit": (MAIN + "os._exit(9)", "its process ended with 9 before it called uvicorn"),
    "thread": (THREAD, "uvicorn is called in a thread: a worker serves in its main thread"),
    "own sockets": (
        "import socket\n" + MAIN + "uvicorn.Server(uvicorn.Config(app)).run(sockets=[socket.socket()])",
        "the script gives uvicorn sockets of its own",
    ),
    "bind_socket": (MAIN + "uvicorn.Config(app).bind_socket()", "Config.bind_socket() is called"),
    "limit_max_requests": (
        MAIN + "uvicorn.run(app, limit_max_requests=100)",
        "and its sessions with it; leave it out, or say `recycle: {max_requests: N}`",
    ),
    "a strange host": (MAIN + "uvicorn.run(app, host='a b')", "the address that it gives to uvicorn: found a b:8000"),
    "a standard stream": (MAIN + "uvicorn.run(app, fd=0)", "found fd://0, expected fd://N with the number"),
    "too many": (
        MAIN + "uvicorn.run('script:app', workers=500)",
        "its number of workers: found 500, expected 1 to 120",
    ),
    "a wrong option": (MAIN + "uvicorn.run(app, prot=3)", "unexpected keyword argument 'prot'"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_each_way_not_to_serve_is_said_once_without_our_frames(
    asked: Asked, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    """The reason, and the user's own traceback where there is one."""
    text, expected = FAILURES[name]
    answer = asked(text)
    assert "Traceback" not in capfd.readouterr().err
    assert expected in answer.problem
    assert "supervisor/" not in answer.problem.replace("gym-supervise", "")
    if "Traceback" in answer.problem:
        assert answer.problem.count("Traceback") == 1
        assert "script.py" in answer.problem


def test_a_script_that_never_gets_there_has_its_time(asked: Asked) -> None:
    """An endless start ends with boot_seconds."""
    answer = asked("import time\ntime.sleep(1000)", timeouts={"boot_seconds": 0.3})
    assert "did not come to a call of uvicorn within boot_seconds, which is 0.3" in answer.problem


def test_it_runs_as_a_script_of_its_own(asked: Asked, tmp_path: Path) -> None:
    """Name, file, argv, sys.path, working folder, environment, module table: as `python script.py` has them."""
    (tmp_path / "beside").mkdir()
    text = (
        "import json, os, pickle, sys, typing\nfrom dataclasses import dataclass\nimport uvicorn\n"
        "class Plain:\n    x: int\n"
        "@dataclass\nclass Node:\n    next: 'Node | None' = None\n"
        "facts = {'name': __name__, 'file': __file__, 'argv': sys.argv, 'path': sys.path[0], 'cwd': os.getcwd(),\n"
        "  'env': os.environ['OWN'], 'main': sys.modules['__main__'].__dict__ is globals(), 'doc': __doc__,\n"
        "  'pickled': pickle.loads(pickle.dumps(Node())) == Node(), 'hints': list(typing.get_type_hints(Node)),\n"
        "  'beside': 'BESIDE' not in sys.path, 'annotation': (lambda: Plain.__annotations__['x'] is int)()}\n"
        "json.dump(facts, open('facts.json', 'w'))\nuvicorn.run(None)\n"
    ).replace("BESIDE", str(tmp_path / "beside"))
    answer = asked('"""Words."""\n' + text, "x", "--y", env={"OWN": "1"}, chdir=tmp_path / "beside")
    assert not answer.problem, answer.problem
    script = str(tmp_path / "script.py")
    assert json.loads((tmp_path / "beside/facts.json").read_text()) == {
        "name": "__main__",
        "file": script,
        "argv": [script, "x", "--y"],
        "path": str(tmp_path),
        "cwd": str(tmp_path / "beside"),
        "env": "1",
        "main": True,
        "doc": "Words.",
        "pickled": True,
        "hints": ["next"],
        "beside": True,
        "annotation": True,
    }


def test_a_service_manager_waits_for_it(asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else can tell it yet; the script itself must not."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "manager"))
        manager.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "manager"))
        text = APP + "sys.exit('told' if 'NOTIFY_SOCKET' in os.environ else 'not told')\n"
        assert "sys.exit('not told')" in asked(text, timeouts={"boot_seconds": 70}).problem
        assert b"EXTEND_TIMEOUT_USEC=100000000" in manager.recv(4096)


def test_what_comes_after_the_call_is_not_run_but_its_cleanup_is(asked: Asked, tmp_path: Path) -> None:
    """Nothing has been served, so the script's results are none; what it has opened it closes, and nothing is left."""
    text = (
        "import atexit, subprocess\n" + APP + "def note(word): open('notes', 'a').write(word + ' ')\n"
        "atexit.register(note, 'atexit')\n"
        "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\nnote(str(child.pid))\n"
        "try:\n    uvicorn.run(app)\n    note('after')\nfinally:\n    note('finally')\n"
    )
    assert not asked(text).problem
    pid, *words = (tmp_path / "notes").read_text().split()
    assert words == ["finally", "atexit"]
    assert not os.path.exists(f"/proc/{pid}/exe")
    assert not (tmp_path / "__pycache__").exists()


def test_two_scripts_with_one_address_are_told_apart_or_refused(tmp_path: Path) -> None:
    """What a script says is compared with the other servers' addresses once it is known."""
    (tmp_path / "script.py").write_text(APP + "uvicorn.run(app, port=int(sys.argv[1]))\n")
    config = tmp_path / "config.yaml"

    def write(one: str, two: str) -> None:
        servers = "".join(
            f"  {name}:\n    app: {{script: script.py, argv: [{port}]}}\n" for name, port in (("a", one), ("b", two))
        )
        config.write_text(f"servers:\n{servers}")

    write("81", "82")
    found = complete(load(config)).servers
    assert [str(server.bind) for server in found.values()] == ["127.0.0.1:81", "127.0.0.1:82"]
    write("81", "81")
    with pytest.raises(ConfigError) as error:
        complete(load(config))
    (problem,) = error.value.problems
    assert problem.startswith(f"{config}:5: servers.b.bind: found 127.0.0.1:81, which cannot be had beside")
    assert problem.endswith("expected an address of its own for each server; give `bind`")


def test_an_app_without_an_affinity_is_looked_at(asked: Asked) -> None:
    """For several workers a preset is proposed; for one the app is not even loaded."""
    session = (
        "import uvicorn\nfrom starlette.applications import Starlette\nfrom starlette.middleware import Middleware\n"
        "from starlette.middleware.sessions import SessionMiddleware\n"
        "app = Starlette(middleware=[Middleware(SessionMiddleware, secret_key='A___a', session_cookie='A___a')])\n"
        "if __name__ == '__main__':\n    uvicorn.run('script:app', port=1)\n"
    )
    assert "`affinity: {preset: gym-resources}` (SessionMiddleware, cookie A___a," in asked(session, workers=2).proposal
    assert asked(session).proposal == ""
    assert asked(session.replace("script:app", "absent:app")).problem == ""
    problem = asked(session.replace("script:app", "absent:app"), workers=2).problem
    assert "app: found 'absent:app', but there is no module 'absent'" in problem
    assert "beside the script" in problem
