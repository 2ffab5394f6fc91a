"""`top` and `claims` on a running service: real requests, real deaths, a supervisor that is stopped."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from threading import Event, Thread

from whole.harness import Service, eventually

Made = Callable[..., Service]


def test_top_sees_requests_relays_and_a_death_that_nobody_notices(service: Made) -> None:
    """Rates of real requests; a worker that dies while the supervisor is stopped is shown as exited, at once."""
    made = service("whole.apps:gym", workers=3).start()
    connection = made.connect()
    _, headers, body = connection.ask("POST", "/seed_session", body={"n": 1})
    cookie = {"cookie": headers["set-cookie"].split(";")[0]}
    session, owner = json.loads(body)["session"], json.loads(body)["pid"]
    elsewhere = next(one for pid, one in made.connections().items() if pid != owner)

    def seen() -> bool:
        """Whether a frame over a time with relayed requests says so."""
        over = Event()

        def ask() -> None:
            while not over.is_set():
                elsewhere.ask("POST", "/show", headers=cookie)
                elsewhere.ask("GET", "/whoami")  # else the connection would be handed to the owner

        asking = Thread(target=ask)
        asking.start()
        try:
            done = made.run("top", "--once", "--interval", "0.5")
        finally:
            over.set()
            asking.join()
        assert done.returncode == 0, done.stderr
        found = re.search(
            r"3 of 3 workers ready, 1 sessions, \d+ in flight, (\d+\S*) requests/s, (\d+\S*) relays/s", done.stdout
        )
        return found is not None and float(found[1]) > 5 and float(found[2]) > 5

    eventually(seen, "a frame with requests and relays")

    supervisor = made.facts["pid"]
    os.kill(supervisor, signal.SIGSTOP)
    try:
        os.kill(owner, signal.SIGKILL)
        done = eventually(
            lambda: one if "exited" in (one := made.run("top", "--once", "--interval", "0.1")).stdout else None, "it"
        )
        assert f"supervisor {supervisor} is stopped by a signal" in done.stdout
        assert re.search(rf"{owner} +exited", done.stdout)
        assert "2 of 3 workers ready" in done.stdout
        assert json.loads(made.run("claims", session, "--json").stdout)[0]["state"] == "live"
    finally:
        os.kill(supervisor, signal.SIGCONT)
    made.wait_restarted()
    (claim,) = json.loads(made.run("claims", session, "--json").stdout)
    assert (claim["state"], claim["owner"]["state"], claim["owner"]["pid"]) == ("gone", "dead", owner)
    assert claim["owner"]["exit"] == "killed by SIGKILL"
    assert claim["owner"]["reason"] is None
    assert "how        killed by SIGKILL" in re.sub(r" {2}how +", "how        ", made.run("claims", session).stdout)
    assert made.stop() == 0
