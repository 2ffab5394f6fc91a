"""Scale, drain and reload on a running service, under a load of episodes: every session right, none cut."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from whole.harness import Service, eventually
from whole.load import Load, options, write_app

from supervisor.commands import episodes

Make = Callable[..., Service]
PLAYED = 15  # episodes before, between and after changes


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """The folder of an app that can be changed."""
    folder = tmp_path / "code"
    write_app(folder, "one")
    return folder


def played(load: Load, count: int = PLAYED) -> None:
    """Wait until so many more episodes have been right."""
    wanted = load.right + count
    eventually(lambda: load.right >= wanted or load.tally.right < load.tally.total, f"{count} more episodes")
    assert load.tally.right == load.tally.total, load.tally


def settled(service: Service, workers: int) -> bool:
    """There are so many workers, all ready, and none that drains."""
    states = [worker["state"] for worker in status(service)]
    return states == ["ready"] * workers


def status(service: Service) -> list[dict[str, Any]]:
    """The workers that `status` shows."""
    workers: list[dict[str, Any]] = json.loads(service.run("status", "--json").stdout)["servers"]["app"]["workers"]
    return workers


def version(service: Service) -> dict[str, Any]:
    """What a worker says of its code."""
    connection = service.connect()
    told: dict[str, Any] = json.loads(connection.ask("GET", "/version")[2])
    connection.http.close()
    return told


def rewrite(service: Service, **changes: Any) -> None:
    """Change keys of the server in the config's file."""
    config = json.loads(service.config.read_text())
    config["servers"]["app"] |= changes
    service.config.write_text(json.dumps(config))


def test_scale_to_2_and_6_and_back_under_load(service: Make, code: Path) -> None:
    """4 -> 2 -> 6: every episode ends right, and what is too much is gone in the end."""
    running = service("mine:app", **options(code)).start()
    with Load(running) as load:
        played(load)
        for workers in (2, 6):
            done = running.run("scale", "app", str(workers))
            assert (done.returncode, done.stderr) == (0, "")
            assert f"{workers} workers" in done.stdout
            assert len({worker["index"] for worker in status(running) if worker["state"] == "ready"}) == workers
            played(load)
        eventually(lambda: settled(running, 6), "the end of those that drained")
    load.assert_all_right()
    assert "are cut" not in running.log.read_text()
    assert running.stop() == 0


def test_one_worker_gets_a_second_one_without_losing_a_session(service: Make, code: Path) -> None:
    """The lone worker hands its sessions over first; both serve them; the first one keeps them to their end."""
    running = service("mine:app", **options(code, workers=1)).start()
    asyncio.run(grow(running))
    assert running.stop() == 0


async def grow(running: Service) -> None:
    """Seed sessions on one worker, get a second and end them; then back to one."""
    async with episodes.client(pooled=None) as client:
        players = [episodes.Episode(client, running.url) for _ in range(40)]
        await asyncio.gather(*(player.seed(number) for number, player in enumerate(players)))
        (first,) = running.rows()
        assert not any(path.is_socket() for path in running.runtime_dir.glob("app.*"))
        done = await asyncio.to_thread(running.run, "scale", "app", "2")
        assert (done.returncode, done.stderr) == (0, "")
        assert len(running.rows()) == 2
        assert running.rows()[first].claims == 40
        await asyncio.gather(*(player.increment(5) for player in players))
        assert running.rows()[first].sessions == 40
        assert sum(row.relayed_out for row in running.rows().values()) > 0
        later = [episodes.Episode(client, running.url) for _ in range(20)]
        await asyncio.gather(*(player.seed(0) for player in later))
        assert (await asyncio.to_thread(running.run, "scale", "app", "1")).returncode == 0
        values = await asyncio.gather(*(player.value() for player in players))
        assert list(values) == [number + 5 for number in range(40)]
        assert await asyncio.gather(*(player.verify(0) for player in later)) == [1.0] * 20
        assert await asyncio.gather(*(player.verify(n + 5) for n, player in enumerate(players))) == [1.0] * 40
        await asyncio.to_thread(eventually, lambda: settled(running, 1), "the second worker's end")
    assert set(running.rows()) == {first}


def test_a_drained_worker_keeps_its_sessions_beside_its_successor(service: Make, code: Path) -> None:
    """`status` shows both under one index; the old one takes no new session, and ends with its last one."""
    running = service("mine:app", **options(code, workers=2)).start()
    asyncio.run(drain(running))
    assert running.stop() == 0


async def drain(running: Service) -> None:
    """Drain worker 0 while it has sessions, and end them."""
    async with episodes.client(pooled=None) as client:
        players = [episodes.Episode(client, running.url) for _ in range(12)]
        await asyncio.gather(*(player.seed(number) for number, player in enumerate(players)))
        old = next(row for row in running.rows().values() if row.index == 0)
        assert old.sessions > 0
        done = await asyncio.to_thread(running.run, "drain", "0")
        assert (done.returncode, done.stderr) == (0, "")
        shown = [(worker["state"], worker["incarnation"]) for worker in status(running) if worker["index"] == 0]
        assert [state for state, _ in shown] == ["ready", "draining"]
        assert shown[1][1] == old.incarnation != shown[0][1]
        await asyncio.gather(*(player.increment(1) for player in players))
        more = [episodes.Episode(client, running.url) for _ in range(30)]
        await asyncio.gather(*(player.seed(0) for player in more))
        assert running.rows()[old.pid].sessions == old.sessions
        assert await asyncio.gather(*(player.verify(n + 1) for n, player in enumerate(players))) == [1.0] * 12
        await asyncio.to_thread(eventually, lambda: old.pid not in running.rows(), "its end")
        assert await asyncio.gather(*(player.verify(0) for player in more)) == [1.0] * 30
    assert "are cut" not in running.log.read_text()


def test_parked_connections_are_served_and_told(service: Make) -> None:
    """A drain cuts none of them: each has one more reply, which says that it ends; no new session stays there."""
    affinity = {"preset": "gym-resources", "session_close_retry_window_seconds": 0.2}
    running = service("whole.apps:gym", workers=1, affinity=affinity).start()
    first, second, third = (running.connect() for _ in range(3))
    for connection in (first, second, third):
        assert connection.ask("GET", "/whoami")[1]["connection"] is None
    _, headers, body = first.ask("POST", "/seed_session", body={"n": 1})
    ended, old = {"cookie": headers["set-cookie"].split(";")[0]}, json.loads(body)["pid"]
    assert first.ask("POST", "/verify", headers=ended)[0] == 200
    assert running.run("drain", "0").returncode == 0
    with running.segment() as segment:
        eventually(lambda: segment.table.count()[0] == 0, "the end of the claim")
    status_, headers, body = first.ask("GET", "/whoami")
    assert (status_, headers["connection"], int(body)) == (200, "close", old)
    for connection, path, sent in ((second, "/seed_session", {}), (third, "/show", ended)):
        status_, headers, body = connection.ask("POST", path, headers=sent, body={})
        assert (status_, headers["connection"]) == (200, "close")
        assert json.loads(body)["pid"] != old, path
    eventually(lambda: old not in running.rows(), "its end")
    assert running.stop() == 0


def test_a_connection_without_a_request_ends_by_the_keep_alive_time(service: Make, code: Path) -> None:
    """It has no time-out in uvicorn; it does not hold the drain up, and is not cut before."""
    running = service("mine:app", **options(code, workers=1)).start()
    (old,) = running.rows()
    with socket.create_connection(("127.0.0.1", running.port), 20) as client:
        eventually(lambda: running.rows()[old].connections == 1, "the connection")
        assert running.run("drain", "0").returncode == 0
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)
        client.settimeout(20)
        assert client.recv(1) == b""
    eventually(lambda: old not in running.rows(), "its end")
    assert running.stop() == 0


def test_who_is_cut_is_said(service: Make, code: Path) -> None:
    """A session that outlives drain_seconds ends with its worker; the log names it, and it gets 410."""
    running = service("mine:app", **options(code, workers=1, timeouts={"drain_seconds": 0.5})).start()
    connection = running.connect()
    _, headers, _ = connection.ask("POST", "/seed_session", body={"initial_count": 3})
    cookie = {"cookie": headers["set-cookie"].split(";")[0]}
    connection.http.close()
    (old,) = running.rows()
    assert running.run("drain", "0").returncode == 0
    eventually(lambda: old not in running.rows(), "its end")
    assert running.connect().ask("POST", "/get_counter_value", body={}, headers=cookie)[0] == 410
    with running.segment() as segment:
        ((_, claim),) = segment.table.dump()
    text = running.log.read_text()
    assert "not drained within drain_seconds (0.5 s)" in text
    assert f"1 sessions are cut: {claim.prefix}..." in text
    assert running.stop() == 0


def test_a_reload_has_new_code_and_config_and_cuts_nobody(service: Make, code: Path) -> None:
    """Under load: all workers are new, all episodes right; the supervisor itself never imports the app."""
    running = service("mine:app", **options(code, workers=3)).start()
    before = set(running.rows())
    with Load(running) as load:
        played(load)
        write_app(code, "two")
        rewrite(running, env={"PYTHONDONTWRITEBYTECODE": "1", "VARIABLE": "set"})
        done = running.run("reload")
        assert (done.returncode, done.stderr) == (0, "")
        assert "3 workers are replaced" in done.stdout
        for _ in range(10):
            told = version(running)
            assert (told["version"], told["variable"]) == ("two", "set")
            assert told["pid"] not in before
        played(load)
        eventually(lambda: settled(running, 3), "the end of the old generation")
        assert not before & set(running.rows())
    load.assert_all_right()
    assert "are cut" not in running.log.read_text()
    assert str(running.facts["pid"]) not in (code / "imported").read_text().split()
    assert running.stop() == 0


BROKEN = {
    "an import that fails": "import no_such_module_anywhere",
    "no app": "wrong = 1",
    "an exit": "import sys; sys.exit(0)",
    "a syntax error": "def (",
}


def test_a_reload_with_code_that_does_not_work_changes_nothing(service: Make, code: Path) -> None:
    """Status 1 with the reason; the same workers serve on, and a later reload with good code works."""
    running = service("mine:app", **options(code, workers=2)).start()
    before = set(running.rows())
    with Load(running, players=4) as load:
        for what, text in BROKEN.items():
            (code / "mine.py").write_text(text)
            done = running.run("reload")
            assert done.returncode == 1, what
            assert "the workers that were there go on" in done.stderr
            assert "failed to boot" in done.stderr
            assert set(running.rows()) == before
        played(load, 5)
        write_app(code, "three")
        assert running.run("reload").returncode == 0
        assert version(running)["version"] == "three"
    load.assert_all_right()
    assert running.log.read_text().count("No module named 'no_such_module_anywhere'") >= 2
    assert running.stop() == 0


REFUSED: dict[str, dict[str, Any]] = {
    "bind": {"bind": "127.0.0.1:1"},
    "claims.max_sessions": {"claims": {"max_sessions": 7}},
    "affinity.session_close_retry_window_seconds": {"affinity": {"preset": "gym-resources"}},
    "affinity.secret": {"affinity": {"preset": "gym-resources", "secret": "hush", "cookie": "c"}},
}


def test_what_cannot_be_changed_live_is_refused_and_named(service: Make, code: Path) -> None:
    """Each with its key, no secret shown; a config that is wrong, too; nothing changes, and the next good one works."""
    running = service("mine:app", **options(code, workers=1)).start()
    before = set(running.rows())
    good = running.config.read_text()
    for key, change in REFUSED.items():
        rewrite(running, **change)
        done = running.run("reload")
        assert done.returncode == 1
        assert f"servers.app.{key}" in done.stderr
        assert "nothing has changed" in done.stderr
        assert "hush" not in done.stderr + running.log.read_text()
        running.config.write_text(good)
    config = json.loads(good)
    config["servers"]["second"] = {**config["servers"]["app"], "bind": "127.0.0.1:2"}
    running.config.write_text(json.dumps(config))
    assert "servers.second: found a server that does not run yet" in running.run("reload").stderr
    running.config.write_text(good)
    rewrite(running, boot_tries="many")
    assert "boot_tries" in running.run("reload").stderr
    running.signal(signal.SIGHUP)
    eventually(lambda: running.log.read_text().count("boot_tries") >= 2, "the refusal in the log")
    assert set(running.rows()) == before
    running.config.write_text(good)
    assert running.run("reload").returncode == 0
    assert not before & {worker["pid"] for worker in status(running) if worker["state"] == "ready"}
    assert running.stop() == 0


def test_a_second_reload_waits_for_the_first_generation_or_ends_it(service: Make, code: Path) -> None:
    """Never two generations that drain: queued while a session lives, begun with its end; or --force cuts it."""
    running = service("mine:app", **options(code, workers=1)).start()
    connection = running.connect()
    _, headers, _ = connection.ask("POST", "/seed_session", body={"initial_count": 3})
    cookie = {"cookie": headers["set-cookie"].split(";")[0]}
    connection.http.close()
    assert running.run("reload").returncode == 0
    queued = running.run("reload", "--no-wait")
    assert queued.returncode == 0
    assert "queued" in queued.stdout
    assert "still drain" in queued.stderr
    generations = [worker["incarnation"] for worker in status(running)]
    assert len(generations) == 2
    assert running.connect().ask("POST", "/verify", body={"expected_count": 3}, headers=cookie)[0] == 200
    eventually(lambda: running.log.read_text().count("workers are replaced") == 2, "the second reload")
    connection = running.connect()
    connection.ask("POST", "/seed_session", body={"initial_count": 3})
    connection.http.close()
    eventually(lambda: settled(running, 1), "the end of the first generation")
    assert running.run("reload").returncode == 0
    forced = running.run("reload", "--force")
    assert forced.returncode == 0
    assert "1 sessions are cut" in running.log.read_text()
    assert running.stop() == 0


def test_signals_scale_and_reload(service: Make, code: Path) -> None:
    """TTIN and TTOU are one worker more and one less; HUP is a reload, once, whoever gets it."""
    running = service("mine:app", **options(code, workers=2)).start()
    running.signal(signal.SIGTTIN)
    eventually(lambda: settled(running, 3), "one more")
    running.signal(signal.SIGTTOU)
    eventually(lambda: settled(running, 2), "one less")
    before = set(running.rows())
    running.signal(signal.SIGHUP)
    os.kill(running.facts["pid"], signal.SIGHUP)
    eventually(lambda: settled(running, 2) and not before & set(running.rows()), "two new workers")
    assert running.log.read_text().count("reload: SIGHUP") == 1
    running.signal(signal.SIGTTOU)
    eventually(lambda: settled(running, 1), "one worker")
    running.signal(signal.SIGTTOU)
    eventually(lambda: "expected 1 to" in running.log.read_text(), "the last one to stay")
    assert settled(running, 1)
    assert running.stop() == 0


def test_commands_say_what_they_cannot(service: Make, code: Path) -> None:
    """Exit status 6 where nothing runs, 2 for what there is not, 1 for what cannot be; each with its reason."""
    running = service("mine:app", **options(code, workers=1))
    for asked in (["reload"], ["scale", "app", "2"], ["drain", "0"]):
        assert running.run(*asked).returncode == 6
    running.start()
    refusals = {
        ("scale", "nope", "2"): (2, "expected one of app"),
        ("scale", "app", "many"): (2, "not a valid integer"),
        ("scale", "app", "0"): (1, "expected 1 to 120"),
        ("scale", "app", "121"): (1, "expected 1 to 120"),
        ("drain", "0", "--server", "nope"): (2, "expected one of app"),
        ("drain", "1"): (1, "found no such worker, expected 0 to 0"),
    }
    for arguments, (status_, text) in refusals.items():
        done = running.run(*arguments)
        assert (done.returncode, text in done.stderr) == (status_, True), (arguments, done)
    for name in ("reload", "scale", "drain"):
        shown = running.run(name, "--help").stdout
        assert "Examples:" in shown
        assert "Exit status: 0" in shown
    assert settled(running, 1)
    assert running.stop() == 0
