"""One death: a worker's sessions are gone, loudly and at once; everything else goes on."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from whole.harness import Service, eventually

APP = "whole.apps:gym"


def seeded(service: Service, number: int) -> list[tuple[str, int]]:
    """Sessions on the service: (cookie, owner's pid)."""
    connection = service.connect()
    found = []
    for n in range(number):
        _, headers, body = connection.ask("POST", "/seed_session", body={"n": n})
        found.append((headers["set-cookie"].split(";")[0], json.loads(body)["pid"]))
    return found


def replaced(service: Service, victim: int) -> bool:
    """The victim's row is dead, and there are as many live ones as before."""
    rows = service.rows()
    return victim not in rows and len(rows) == service.workers


def test_a_dead_workers_sessions_get_410_from_everybody(service: Callable[..., Service]) -> None:
    """Every worker, the replacement included, answers 410 with the facts and the cookie; the others' sessions live."""
    gym = service(APP).start()
    sessions = seeded(gym, 24)
    victim = sessions[0][1]
    index = gym.rows()[victim].index
    incarnation = gym.rows()[victim].incarnation
    os.kill(victim, signal.SIGKILL)
    eventually(partial(replaced, gym, victim), "the replacement")
    gym.wait_ready()
    connections = gym.connections()
    for cookie, owner in sessions:
        for connection in connections.values():
            status, headers, body = connection.ask("POST", "/show", headers={"cookie": cookie})
            if owner != victim:
                assert (status, json.loads(body)["pid"]) == (200, owner)
                continue
            assert status == 410
            reply = json.loads(body)
            assert reply["error"] == "session_gone"
            assert (reply["server"], reply["worker"], reply["incarnation"]) == ("app", index, incarnation)
            assert reply["died_at"].endswith("Z")
            assert f"(pid {victim}), which held this session, has ended (killed by SIGKILL) at " in reply["detail"]
            assert headers["cache-control"] == "no-store"
            assert headers["set-cookie"].startswith(cookie)
    done = gym.run("claims", "--json")
    claims = json.loads(done.stdout)
    lost = [claim for claim in claims if claim["incarnation"] == incarnation]
    assert len(lost) == sum(owner == victim for _, owner in sessions)
    assert {claim["state"] for claim in lost} == {"gone"}
    assert gym.stop() == 0


def test_a_relayed_request_whose_owner_dies_gets_410_or_a_broken_connection(service: Callable[..., Service]) -> None:
    """Before the first byte of the reply: 410. After it: the connection breaks, and never looks complete."""
    gym = service(APP).start()
    cookie, owner = seeded(gym, 1)[0]
    connections = gym.connections()
    others = [connection for pid, connection in connections.items() if pid != owner]
    results: list[Any] = []

    def waiting() -> None:
        results.append(others[0].ask("POST", "/slow?seconds=60", headers={"cookie": cookie})[0])

    thread = threading.Thread(target=waiting)
    thread.start()
    stream = others[1].http
    stream.request("GET", "/stream?n=1000&size=100&pause=0.05", headers={"cookie": cookie})
    reply = stream.getresponse()
    assert reply.read(100) == b"x" * 100
    eventually(lambda: gym.rows()[owner].in_flight >= 2, "both requests to be with the owner")
    os.kill(owner, signal.SIGKILL)
    thread.join(30)
    assert results == [410]
    broken = False
    try:
        reply.read()
    except Exception:
        broken = True
    assert broken
    assert gym.stop() == 0


def test_new_sessions_are_accepted_while_workers_die(service: Callable[..., Service]) -> None:
    """Whoever dies meanwhile, a start is answered 200 as long as its own worker lives."""
    gym = service(APP).start()
    for _ in range(3):
        victim = seeded(gym, 1)[0][1]
        os.kill(victim, signal.SIGKILL)
        refused = 0
        for _ in range(10):
            try:
                status, _, _ = gym.connect().ask("POST", "/seed_session", body={"n": 1})
            except ConnectionError:
                refused += 1  # it lay in the dead worker's hands
            else:
                assert status == 200
        assert refused <= 1
        eventually(partial(replaced, gym, victim), "the replacement")
        gym.wait_ready()
    assert gym.stop() == 0


def test_old_cookies_after_a_restart_start_on_one_worker_only(service: Callable[..., Service]) -> None:
    """A cookie from before a restart is claimed by the first worker that sees it; all others follow."""
    gym = service(APP).start()
    cookie, _ = seeded(gym, 1)[0]
    assert gym.stop() == 0
    gym.start()
    owners = {
        json.loads(connection.ask("POST", "/show", headers={"cookie": cookie})[2])["pid"]
        for connection in gym.connections().values()
    }
    assert len(owners) == 1
    assert gym.stop() == 0
