"""Log lines of a whole service: apps and log_config that set up logging, and rotation."""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from whole.harness import Service, eventually

from supervisor.logs import files as log_files

Made = Callable[..., Service]


def refuse_one(service: Service) -> str:
    """A session whose owner dies, and a request for it: the router says why it is refused. Returns its path."""
    connection = service.connect()
    _, headers, body = connection.ask("POST", "/seed_session", body={"n": 1})
    os.kill(json.loads(body)["pid"], signal.SIGKILL)
    service.wait_restarted()
    path = f"/show?{uuid4().hex}"
    cookie = headers["set-cookie"].split(";")[0]
    assert service.connect().ask("POST", path, headers={"cookie": cookie})[0] == 410
    return path


@pytest.mark.parametrize("setup", ["", "dict", "basic", "own", "none"])
def test_every_line_comes_once_however_the_app_logs(service: Made, setup: str) -> None:
    """The app's lines, uvicorn's and ours: an app that takes the root logger over loses none and doubles none."""
    made = service("whole.log_app:gym", workers=2, env={"LOG_APP": setup}).start()
    text = uuid4().hex
    assert made.connect().ask("GET", f"/say?text={text}")[0] == 200
    path = refuse_one(made)
    assert made.stop() == 0
    lines = made.log.read_text().splitlines()
    said = [line for line in lines if text in line and "HTTP" not in line]
    assert len(said) == 1, said
    assert said[0].startswith("APP app: ") is (setup in ("dict", "basic", "own"))
    assert (" WARNING  app." in said[0]) is (setup in ("", "none"))
    refused = [line for line in lines if "session_gone: POST /show" in line]
    assert len(refused) == 1, refused
    assert " WARNING  app." in refused[0]
    if setup not in ("dict", "none"):  # those two disable uvicorn's loggers, under a plain uvicorn as well
        assert len([line for line in lines if path in line]) == 1


CONFIG: dict[str, Any] = {
    "version": 1,
    "formatters": {
        "default": {"()": "uvicorn.logging.DefaultFormatter", "fmt": "%(levelprefix)s %(message)s"},
        "access": {
            "()": "uvicorn.logging.AccessFormatter",
            "fmt": "%(request_line)s|%(status_code)s|%(session)s|%(worker)s|%(owner)s",
            "use_colors": False,
        },
    },
    "handlers": {
        "default": {"class": "logging.StreamHandler", "formatter": "default"},
        "access": {"class": "logging.FileHandler", "formatter": "access", "filename": "FILE"},
    },
    "loggers": {
        "uvicorn": {"handlers": ["default"], "level": "INFO", "propagate": False},
        "uvicorn.access": {"handlers": ["access"], "level": "INFO", "propagate": False},
    },
}


@pytest.mark.parametrize("form", ["mapping", "json"])
def test_log_config_is_uvicorns_own(service: Made, tmp_path: Path, form: str) -> None:
    """Its handlers and formats get the access lines, with our facts; USR1 opens its files anew after a rotation."""
    path = tmp_path / "access.log"
    config = json.loads(json.dumps(CONFIG).replace("FILE", str(path)))
    if form == "json":
        (tmp_path / "logging.json").write_text(json.dumps(config))
        config = str(tmp_path / "logging.json")
    made = service("whole.log_app:gym", workers=2, uvicorn={"log_config": config}).start()
    _, _, body = made.connect().ask("POST", "/seed_session?before", body={"n": 1})
    line = eventually(lambda: path.read_text().splitlines(), "its line")[0]
    prefix = json.loads(body)["session"][:8]
    request, status, session, worker, owner = line.split("|")
    assert (request, status, session) == ("POST /seed_session?before HTTP/1.1", "200 OK", prefix)
    assert {worker, owner} <= {"0", "1"}
    assert "?before" not in made.log.read_text()
    text = uuid4().hex
    made.connect().ask("GET", f"/say?text={text}")
    eventually(lambda: text in made.log.read_text(), "the app's own line, through our handler")

    path.rename(tmp_path / "access.log.1")
    made.signal(signal.SIGUSR1)
    eventually(lambda: made.log.read_text().count("log files opened anew") == 2, "both workers")
    for connection in made.connections().values():
        assert connection.ask("GET", "/whoami?after")[0] == 200
    eventually(lambda: path.read_text().count("?after") == 2, "lines in the new file")
    assert "?after" not in (tmp_path / "access.log.1").read_text()
    refuse_one(made)
    assert "session_gone" in made.log.read_text()
    assert made.stop() == 0


def test_a_log_config_that_cannot_be_applied_fails_the_boot(service: Made) -> None:
    """With status 3, its key and the cause."""
    made = service("whole.log_app:gym", workers=1, boot_tries=1, uvicorn={"log_config": {"version": 2}})
    made.start(ready=False)
    assert made.wait() == 3
    assert "servers.app.uvicorn.log_config: found settings that cannot be applied" in made.log.read_text()


def test_the_apps_own_files_are_opened_anew(service: Made, tmp_path: Path) -> None:
    """Also one behind a queue, and one with mode w, which keeps what it has when it was not rotated."""
    file = tmp_path / "app.log"
    made = service("whole.log_app:gym", workers=1, env={"LOG_APP": "files", "LOG_APP_FILE": str(file)}).start()
    plain, queued = Path(f"{file}.plain"), Path(f"{file}.queued")
    connection = made.connect()
    connection.ask("GET", "/say?text=one")
    eventually(lambda: "one" in queued.read_text(), "the queue's line")
    queued.rename(tmp_path / "old")
    made.signal(signal.SIGUSR1)
    eventually(lambda: made.log.read_text().count("log files opened anew") == 1, "the worker's word")
    connection.ask("GET", "/say?text=two")
    eventually(lambda: queued.read_text() == "two\n", "the line in the new file")
    assert plain.read_text() == "one\ntwo\n"
    assert made.stop() == 0


def test_a_stderr_that_was_renamed_is_not_ours_to_open_anew(service: Made) -> None:
    """It is said, with what to do; the lines go on into the old file, none is lost, and copytruncate works."""
    made = service("whole.log_app:gym", workers=1).start()
    made.signal(signal.SIGUSR1)
    eventually(lambda: f"stderr still goes to {made.log}" in made.log.read_text(), "that it is as it was")
    moved = made.log.with_name("log.1")
    made.log.rename(moved)
    made.signal(signal.SIGUSR1)
    eventually(lambda: f"stderr goes on into {moved}: it was opened as {made.log}" in moved.read_text(), "its fate")
    assert "copytruncate" in moved.read_text()
    os.truncate(moved, 0)
    assert made.connect().ask("GET", "/whoami?after")[0] == 200
    eventually(lambda: "?after" in moved.read_text(), "the line in the old file")
    assert moved.read_bytes()[:1] != b"\0"
    moved.rename(made.log)
    assert made.stop() == 0


def test_usr1_to_every_process_ends_none(service: Made) -> None:
    """`systemctl kill -s USR1` signals all of them; an app's own handler for it stays the app's."""
    made = service("whole.log_app:gym", workers=1, env={"LOG_APP": "signal"}).start()
    (worker,) = made.rows()
    for pid in (worker, made.facts["pid"], made.facts["guardian"]):
        os.kill(pid, signal.SIGUSR1)
    connection = made.connect()
    eventually(lambda: connection.ask("GET", "/signals")[2] == b"1", "the app's handler")
    other = service("whole.log_app:gym", workers=1).start()
    (worker,) = other.rows()
    os.kill(worker, signal.SIGUSR1)
    assert other.connect().ask("GET", "/whoami")[2] == str(worker).encode()
    assert list(made.rows()) + list(other.rows()) != []
    assert made.stop() == other.stop() == 0
    assert "is gone" not in made.log.read_text() + other.log.read_text()


def test_level_and_form_follow_a_reload(service: Made) -> None:
    """In the supervisor, in new workers, and in those that still drain."""
    made = service("whole.log_app:gym", workers=1, log={"level": "info"}).start()
    connection = made.connect()
    _, headers, body = connection.ask("POST", "/seed_session", body={"n": 1})
    cookie, owner = {"cookie": headers["set-cookie"].split(";")[0]}, json.loads(body)["pid"]
    config = json.loads(made.config.read_text())
    made.config.write_text(json.dumps(config | {"log": {"level": "warning", "format": "json"}}))
    done = made.run("reload")
    assert done.returncode == 0, done.stderr
    mark = len(made.log.read_text())
    text = uuid4().hex
    _, _, pid = made.connect().ask("GET", f"/say?text={text}", headers=cookie)
    assert int(pid) == owner
    os.kill(next(pid for pid in made.rows() if pid != owner), signal.SIGKILL)
    eventually(lambda: "is gone" in made.log.read_text()[mark:], "the supervisor's warning")
    entries = [json.loads(line) for line in made.log.read_text()[mark:].splitlines()]
    said = {entry["role"]: entry for entry in entries if text in entry["message"] or "is gone" in entry["message"]}
    assert (said["app.0"]["pid"], said["app.0"]["message"]) == (owner, text)
    assert said["supervisor"]["level"] == "warning"
    assert {entry["level"] for entry in entries} == {"warning"}
    made.wait_ready()
    made.signal(signal.SIGTERM)
    made.wait()


def test_a_file_that_cannot_be_opened_anew_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its folder is gone: said, and the old file keeps its lines. A handler that waits for its first line is left."""
    folder = tmp_path / "logs"
    folder.mkdir()
    handler = logging.FileHandler(folder / "x.log")
    late = logging.FileHandler(tmp_path / "late.log", delay=True)
    watched = logging.handlers.WatchedFileHandler(tmp_path / "watched.log")
    try:
        folder.rename(tmp_path / "moved")
        (tmp_path / "watched.log").rename(tmp_path / "watched.log.1")
        with caplog.at_level(logging.ERROR):
            done = log_files.reopen()
        assert str(tmp_path / "watched.log") in done
        assert str(folder / "x.log") not in done
        assert (tmp_path / "watched.log").exists()
        assert not (tmp_path / "late.log").exists()
        assert "x.log cannot be opened anew" in caplog.text
        handler.emit(logging.makeLogRecord({"msg": "still here"}))
        assert (tmp_path / "moved" / "x.log").read_text() == "still here\n"
    finally:
        for one in (handler, late, watched):
            one.close()
