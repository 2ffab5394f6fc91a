"""The scripts of examples/scripts, written for plain uvicorn, on four workers: every session right anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from scripts.runs import EXAMPLES, Run
from whole.harness import Connection

SESSIONS = 8


class Client:
    """One session, which goes over another connection each time."""

    def __init__(self, connections: list[Connection], number: int) -> None:
        self.connections = connections
        self.number = number
        self.count = 0
        self.pids: set[int] = set()
        self.headers = {"x-cart": f"cart-{number}"}

    def post(self, path: str, body: Any) -> Any:
        """The JSON reply; the last reply's cookies are sent."""
        connection = self.connections[(self.number + self.count) % len(self.connections)]
        self.count += 1
        status, headers, content = connection.ask("POST", path, body=body, headers=self.headers)
        assert status == 200, content
        if "set-cookie" in headers:
            self.headers["cookie"] = headers["set-cookie"].split(";")[0]
        reply = json.loads(content)
        if "pid" in reply:
            self.pids.add(reply["pid"])
        return reply


def play_gym_server(client: Client) -> None:
    """An episode."""
    client.post("/seed_session", {"start": client.number})
    totals = [client.post("/add", {"number": 10})["total"] for _ in range(5)]
    assert totals == [client.number + 10 * count for count in range(1, 6)]
    assert client.post("/verify", {"total": client.number + 50})["reward"] == 1.0


def play_async_main(client: Client) -> None:
    """A game, to its end."""
    low, high, guesses = 1, 100, 0
    while True:
        guess, guesses = (low + high) // 2, guesses + 1
        reply = client.post("/guess", {"number": guess})
        assert reply["guesses"] == guesses
        if reply["hint"] == "right":
            return
        low, high = (guess + 1, high) if reply["hint"] == "higher" else (low, guess - 1)
        assert low <= high


def play_import_string(client: Client) -> None:
    """A cart."""
    things = [f"{client.number}-{count}" for count in range(5)]
    for count, thing in enumerate(things, 1):
        assert client.post("/put", {"thing": thing})["cart"] == things[:count]


CASES: dict[str, tuple[list[str], Callable[[Client], None]]] = {
    "gym_server": (["--workers", "4", "--preset", "gym-resources"], play_gym_server),
    "async_main": (["-w", "4", "-p", "starlette-session", "--set", "affinity.field=player"], play_async_main),
    "import_string": (
        ["--preset", "custom", "--set", "affinity.sources=[header: x-cart]", "--set", "affinity.unknown=claim"],
        play_import_string,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_unmodified_script_on_four_workers(ran: Callable[..., Run], name: str) -> None:
    """Address and, for one of them, the number of workers are the script's own; sessions go over all connections."""
    options, play = CASES[name]
    run = ran(options, EXAMPLES / f"{name}.py", "--port", "0").start()
    connections = list(run.connections().values())
    clients = [Client(connections, number) for number in range(SESSIONS)]
    for client in clients:
        play(client)
    assert all(len(client.pids) == 1 for client in clients)
    assert len(set.union(*(client.pids for client in clients))) > 1
    rows = run.rows().values()
    assert sum(row.relayed_out for row in rows) >= SESSIONS
    assert sum(row.relayed_in for row in rows) >= SESSIONS
    assert run.run("status", "--json").returncode == 0
    assert run.stop() == 0
    if name == "async_main":
        assert run.log.read_text().count("players in") == 4
