"""`status` and `claims` on a real segment: of a running, a stopped and a dead supervisor."""

from __future__ import annotations

import io
import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command.held import APP, Held, wait_for_state
from rich.console import Console

from ops import dump, tables
from shmclaims.segment import Segment
from supervisor import cli
from supervisor.runtime_dir import RuntimeDir

Run = Callable[..., Any]
TIME = "2027-01-15T08:00:00Z"


def test_status_json_has_exactly_the_documented_fields(held: Held, run: Run) -> None:
    """Every field of the design, from a running service."""
    done = run("status", str(held.config), "--json")
    assert (done.status, done.err) == (0, "")
    status = json.loads(done.out)
    ages = [worker.pop("heartbeat_age_seconds") for worker in status["servers"]["counter"]["workers"]]
    assert ages[0] >= 0
    assert ages[1] >= 0
    assert ages[2] is None
    counters = {"sessions": 0, "in_flight": 0, "requests": 0, "relayed_out": 0, "relayed_in": 0, "restarts": 0}
    memory = {"rss_bytes": 50 * 2**20}
    assert status == {
        "supervisor": {"pid": held.process.pid, "started_at": TIME, "version": "1.2.3"},
        "servers": {
            "counter": {
                "bind": "127.0.0.1:4321",
                "workers": [
                    {"index": 0, "pid": 1000, "incarnation": 1, "state": "ready"}
                    | counters
                    | {"sessions": 2, "requests": 10}
                    | memory,
                    {"index": 1, "pid": 1001, "incarnation": 2, "state": "ready"}
                    | counters
                    | {"sessions": 1, "requests": 20, "relayed_out": 1}
                    | memory,
                    {"index": 2, "pid": None, "incarnation": 3, "state": "backoff"}
                    | counters
                    | {"restarts": 4, "rss_bytes": None},
                ],
                "claims": {"live": 3, "gone": 1, "capacity": 100},
            }
        },
    }


def test_claims_json_has_exactly_the_documented_fields(held: Held, run: Run) -> None:
    """A list of claims: a readable prefix and a digest, never the whole id."""
    done = run("claims", str(held.config), "--json")
    assert (done.status, done.err) == (0, "")
    claims = {(claim["session"], claim["worker"]): claim for claim in json.loads(done.out)}
    claim = claims["gone-000", 2]
    assert re.fullmatch(r"[0-9a-f]{32}", claim.pop("digest"))
    assert claim == {
        "server": "counter",
        "session": "gone-000",
        "state": "gone",
        "worker": 2,
        "incarnation": 3,
        "opened_at": TIME,
        "last_used_at": TIME,
    }
    assert len(json.loads(done.out)) == 4
    assert not any(whole in done.out for whole in ("alpha-00-0000-0001", "beta-000-0000-0001", "gone-000-0000-0001"))


CHOICES: list[tuple[list[str], set[str]]] = [
    (["--state", "gone"], {"gone-000"}),
    (["--state", "live"], {"alpha-00", "beta-000"}),
    (["--worker", "1"], {"beta-000"}),
    (["--worker", "9"], set()),
    (["--server", "counter", "--worker", "0"], {"alpha-00"}),
    (["beta-000-0000-0001"], {"beta-000"}),
    (["gone-000-0000-0001", "--state", "gone"], {"gone-000"}),
    (["gone-000-0000-0001", "--state", "live"], set()),
    (["beta-000"], set()),
    (["nobody"], set()),
]


def test_claims_can_be_chosen(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    """By state, worker, server, and by the whole session id alone."""
    for arguments, expected in CHOICES:
        assert cli.run(["claims", str(held.config), "--json", *arguments]) == 0
        assert {claim["session"] for claim in json.loads(capsys.readouterr().out)} == expected, arguments


def owner_of(run: Run, held: Held, *arguments: str) -> dict[str, Any]:
    """The one claim that the arguments name, and its owner."""
    done = run("claims", str(held.config), "--json", *arguments)
    assert done.status == 0
    (claim,) = json.loads(done.out)
    return dict(claim)


def test_one_session_comes_with_all_about_its_owner(held: Held, run: Run) -> None:
    """By id or by digest: who holds it, since when, and if it is gone, when and how its owner died, and why."""
    claim = owner_of(run, held, "gone-000-0000-0001")
    owner = claim.pop("owner")
    started, age = owner.pop("started_at"), owner.pop("heartbeat_age_seconds")
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", started)
    assert age >= 0
    assert owner == {
        "state": "dead",
        "pid": 1002,
        "died_at": "2027-01-15T08:01:40Z",
        "exit": "killed by SIGKILL",
        "reason": "did not beat for 60 s",
    }
    assert owner_of(run, held, claim["digest"])["owner"]["pid"] == 1002
    alive = owner_of(run, held, "beta-000-0000-0001")["owner"]
    assert (alive["state"], alive["pid"], alive["died_at"], alive["exit"]) == ("ready", 1001, None, None)


def test_one_session_is_told_to_people_in_words(held: Held, run: Run) -> None:
    """Live, gone, nobody's, and gone with its supervisor."""

    def told(session: str) -> str:
        done = run("claims", str(held.config), session)
        assert done.status == 0
        return re.sub(r" +", " ", done.out)

    live = told("beta-000-0000-0001")
    assert "beta-000... of server counter, live" in live
    assert "owner worker 1, incarnation 2, pid 1001" in live
    assert re.search(r"state ready, last heartbeat \d+ s ago", live)
    gone = told("gone-000-0000-0001")
    assert "gone-000... of server counter, gone" in gone
    assert "died 2027-01-15T08:01:40Z" in gone
    assert "how killed by SIGKILL: the supervisor ended it, since it did not beat for 60 s" in gone
    assert "no claims: it was never claimed here" in told("nobody")
    held.kill()
    assert re.search(r"died with its supervisor; its last heartbeat was \d+ s ago", told("beta-000-0000-0001"))
    assert owner_of(run, held, "beta-000-0000-0001")["owner"]["state"] == "dead"


def test_an_owner_whose_row_is_forgotten_is_only_dead(held: Held) -> None:
    """After 256 later workers nothing is known of it but its number."""
    segment = Segment.attach(held.segment)
    try:
        claim = segment.table.lookup(b"gone-000-0000-0001")
        assert claim is not None
        found = dump.owner(segment, msgspec.structs.replace(claim, incarnation=3 + 256), now=0.0, dead=False)
    finally:
        segment.close()
    facts = ("pid", "started_at", "died_at", "exit", "reason", "heartbeat_age_seconds")
    assert found == {"state": "dead", **dict.fromkeys(facts)}
    entry = {"server": "a", "session": "x", "digest": "d", "state": "gone", "worker": 0, "incarnation": 1}
    entry |= {"opened_at": None, "last_used_at": None, "owner": found}
    console = Console(width=120, file=io.StringIO())
    console.print(tables.one_claim([entry], now=0.0))
    assert "so long ago that its row has gone to a later worker" in console.file.getvalue()  # type: ignore[attr-defined]


def test_an_unknown_server_is_a_usage_error(held: Held, run: Run) -> None:
    """The names that there are are said."""
    done = run("claims", str(held.config), "--server", "nope")
    assert done.status == 2
    assert "--server: found 'nope', expected one of counter" in done.err


def test_people_get_tables(held: Held, run: Run) -> None:
    """Without --json both commands print a table that is not cut where no terminal is."""
    status = run("status", str(held.config))
    assert status.status == 0
    assert "counter on 127.0.0.1:4321: 3 live and 1 gone claims of 100" in status.out
    assert re.search(r"0 +1000 +1 +ready +2 +0 +10 ", status.out)
    assert re.search(r"2 +- +3 +backoff .* 4 +- +-", status.out)
    claims = run("claims", str(held.config))
    assert re.search(r"counter +beta-000\.\.\. +live +1 +2 +2027-01-15T08:00:00Z .*[0-9a-f]{32}", claims.out)
    assert "4 claims" in claims.out
    assert "no claims" in run("claims", str(held.config), "nobody").out


def test_a_stopped_supervisor_is_said_on_stderr_and_read_all_the_same(held: Held, run: Run) -> None:
    """SIGSTOP of the supervisor hides nothing."""
    held.process.send_signal(signal.SIGSTOP)
    wait_for_state(held.process.pid, "T")
    for command in ("status", "claims"):
        done = run(command, str(held.config), "--json")
        assert done.status == 0
        assert f"supervisor {held.process.pid} is stopped by a signal" in done.err
        assert json.loads(done.out)


def test_a_dead_supervisors_segment_is_read_and_its_claims_are_gone(held: Held, run: Run) -> None:
    """After SIGKILL the operator sees what was there; no worker outlives its supervisor, so no claim is live."""
    held.kill()
    status = run("status", str(held.config), "--json")
    assert status.status == 0
    assert f"supervisor {held.process.pid} is dead" in status.err
    assert json.loads(status.out)["servers"]["counter"]["claims"]["capacity"] == 100
    claims = run("claims", str(held.config), "--json")
    assert {claim["state"] for claim in json.loads(claims.out)} == {"gone"}
    assert len(json.loads(claims.out)) == 4
    assert len(json.loads(run("claims", str(held.config), "--json", "alpha-00-0000-0001").out)) == 1


def test_nothing_is_left_when_the_segment_is_gone_too(held: Held, run: Run) -> None:
    """A dead supervisor whose shared memory was removed: nothing runs there."""
    held.kill()
    segment = Segment.attach(held.segment)
    segment.unlink()
    segment.close()
    done = run("status", str(held.config))
    assert done.status == 6
    assert "the shared memory of server counter cannot be read" in done.err


def test_a_supervisor_that_is_still_starting_is_said_to_be(tmp_path: Path, run: Run) -> None:
    """The lock is held, the segments are not there yet."""
    config = tmp_path / "config.yaml"
    config.write_text(APP)
    runtime = RuntimeDir(str(tmp_path / "run"))
    try:
        done = run("status", str(config))
    finally:
        runtime.close()
    assert done.status == 6
    assert f"supervisor {os.getpid()}, which is starting" in done.err
