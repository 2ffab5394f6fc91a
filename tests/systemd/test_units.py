"""Units as `gym-supervise unit` prints them, run by a real systemd."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from whole.harness import COMMAND, REPO

from systemd.machine import CONFIGS, UNITS, Machine, Unit, ask, clients, free_address, patiently

Make = Callable[..., Unit]

STATE = ("ActiveState", "SubState")
SHORT_SECONDS = 10
MOST_EXPOSED = 2.0
"""systemd-analyze's score, 0 to 10; below 2.5 is its best class for a service that speaks to the network."""


def test_it_has_started_when_every_worker_is_ready(unit: Make) -> None:
    """Not before: systemd waits while one of two still boots, and says so. Then the status has workers and sessions."""
    one = unit("start").install()
    one.shut_gate()
    one.systemctl("start", "--no-block")
    properties = (*STATE, "StatusText")
    one.wait("activating", "start", "starting; app: 1 of 2 workers ready, 0 sessions", properties=properties)
    one.open_gate()
    one.wait("active", "running", "app: 2 of 2 workers ready, 0 sessions", properties=properties)
    assert one.show("MainPID") == [str(one.facts["guardian"])]
    address = one.address
    for number in range(3):
        ask(address, f"session-{number}")
    one.wait("app: 2 of 2 workers ready, 3 sessions", properties=("StatusText",))


@pytest.mark.soak
def test_slow_starts_and_reloads_get_their_time(unit: Make) -> None:
    """Each takes longer than systemd waits by itself; it does not give up, and takes the reload for a success."""
    one = unit("slow").install(drop_in=f"TimeoutStartSec={SHORT_SECONDS}\n")
    for verb, state in (("start", ["activating", "start"]), ("reload", ["reloading", "reload"])):
        one.shut_gate()
        one.systemctl(verb, "--no-block")
        begun = time.monotonic()
        patiently(lambda begun=begun: time.monotonic() > begun + SHORT_SECONDS + 1, "the time to be over")  # type: ignore[misc]
        assert one.show(*STATE) == state
        one.open_gate()
        one.wait("active", "running", properties=STATE)
    assert "timed out" not in one.journal()


def test_a_killed_worker_does_not_end_the_service(unit: Make) -> None:
    """As the kernel kills one for its memory: it is replaced, and for systemd nothing has happened."""
    one = unit("oom").install()
    one.systemctl("start")
    before = one.show("MainPID", "NRestarts", *STATE)
    victim = one.workers()[0]["pid"]
    one.machine.do("kill", "-KILL", str(victim))
    patiently(lambda: [w["restarts"] for w in one.workers() if w["state"] == "ready"] == [1, 0], "a replacement")
    assert one.show("MainPID", "NRestarts", *STATE) == before
    assert one.show("OOMPolicy") == ["continue"]


def test_the_watchdog_ends_a_supervisor_that_hangs(unit: Make) -> None:
    """While it turns it pings; stopped, its stack goes into the journal and the whole service starts anew."""
    one = unit("watchdog").install(drop_in="WatchdogSec=2\n")
    one.systemctl("start")
    pings: set[str] = set()

    def pinged() -> bool:
        pings.update(one.show("WatchdogTimestampMonotonic"))
        return len(pings) > 3

    patiently(pinged, "pings")
    assert one.show("NRestarts", *STATE) == ["0", "active", "running"]
    before = one.processes()
    supervisor = one.status()["supervisor"]["pid"]
    one.machine.do("kill", "-STOP", str(supervisor))
    one.wait("1", "active", "running", properties=("NRestarts", *STATE))
    assert one.status()["supervisor"]["pid"] != supervisor
    assert not set(before) & set(one.processes())
    journal = one.journal()
    assert "Watchdog timeout" in journal
    assert re.search(r"Fatal Python error: Aborted\n.*\n\s+File .*/supervisor/loop.py", journal), journal
    assert ask(one.address) > 0


def test_a_killed_guardian_means_a_new_start(unit: Make) -> None:
    """Nothing of the old service is left beside the new one."""
    one = unit("guardian").install()
    one.systemctl("start")
    before = one.processes()
    one.systemctl("kill", "--kill-whom=main", "--signal=KILL")
    one.wait("1", "active", "running", properties=("NRestarts", *STATE))
    assert not set(before) & set(one.processes())
    assert ask(one.address) > 0


def test_a_stop_leaves_nothing_and_takes_nothing_of_others(unit: Make) -> None:
    """No process, no shared memory, no runtime folder; another service of the same user keeps its own."""
    one, other = unit("stop").install(), unit("other").install()
    one.systemctl("start")
    other.systemctl("start")
    address = one.address
    one.systemctl("stop")
    assert one.show("ActiveState", "Result", "ExecMainStatus") == ["inactive", "success", "0"]
    assert one.machine.run("ls", f"/run/gym-supervise/{one.name}").status != 0
    with pytest.raises(ConnectionRefusedError):
        ask(address)
    assert [worker["state"] for worker in other.workers()] == ["ready", "ready"]
    assert other.left() != []
    other.systemctl("stop")
    assert other.left() == []


def test_a_restart_through_a_socket_unit_refuses_nobody(unit: Make) -> None:
    """The first connection starts the service; over a restart every client that connects is served."""
    address = free_address()
    listen = f"{address[0]}:{address[1]}"
    one = unit("socket", bind="systemd:web").install(listen=listen)
    one.machine.do("systemctl", "start", one.socket)
    assert one.show("ActiveState") == ["inactive"]
    ask(address)
    one.wait("active", properties=("ActiveState",))
    before = {worker["pid"] for worker in one.workers()}
    with clients(address) as answers:
        one.systemctl("restart")
        enough = len(answers) + 10
        patiently(lambda: len(answers) >= enough, "answers after the restart")
    pids = [answer for answer in answers if isinstance(answer, int)]
    assert before & set(pids)
    assert not before & set(pids[-5:])
    assert [answer for answer in answers if isinstance(answer, str)] == []
    assert one.show("NRestarts", *STATE) == ["0", "active", "running"]


def test_a_reload_is_shown_while_it_lasts(unit: Make) -> None:
    """As such and in the status; then all workers are new."""
    one = unit("reload").install()
    one.systemctl("start")
    before = {worker["pid"] for worker in one.workers()}
    one.shut_gate()
    one.systemctl("reload", "--no-block")
    text = "reloading; app: 2 of 2 workers ready, 0 sessions"
    one.wait("reloading", "reload", text, properties=(*STATE, "StatusText"))
    one.open_gate()
    one.wait("active", "running", properties=STATE)
    patiently(lambda: not before & {worker["pid"] for worker in one.workers()}, "new workers only")


def test_a_reload_that_fails_changes_nothing(unit: Make) -> None:
    """`systemctl reload` says so; the service runs on with the workers that it had."""
    one = unit("refuses").install()
    one.systemctl("start")
    before = one.workers()
    one.server["app"] = "unit_app:missing"
    one.write_config()
    assert one.machine.run("systemctl", "reload", one.service).status != 0
    one.wait("active", "running", properties=STATE)
    assert [(w["pid"], w["state"]) for w in one.workers()] == [(w["pid"], "ready") for w in before]
    assert "nothing has changed" in one.journal() or "go on, with the code and config that they have" in one.journal()


@pytest.mark.parametrize(("status", "said"), [("2", "workers: found 0"), ("3", "given up, its app fails to boot")])
def test_what_does_not_mend_itself_is_not_tried_again(unit: Make, status: str, said: str) -> None:
    """A wrong config, and an app that does not boot: the unit has failed, and says why."""
    one = unit(f"fails{status}", boot_tries=1).install()
    one.server["app" if status == "3" else "workers"] = "unit_app:missing" if status == "3" else 0
    one.write_config()
    assert one.machine.run("systemctl", "start", one.service).status != 0
    one.wait("failed", "failed", status, "0", properties=(*STATE, "ExecMainStatus", "NRestarts"))
    assert said in one.show("StatusText")[0] + one.journal()


def test_a_template_serves_every_config_of_the_folder(unit: Make, machine: Machine) -> None:
    """The unit file of this repository, with the command where it expects it."""
    one = unit("many")
    one.write_config()
    one.service = "gym-supervise@many.service"
    machine.do("mkdir", "-p", "/opt/gym-supervise/bin")
    machine.do("ln", "-sf", COMMAND, "/opt/gym-supervise/bin/gym-supervise")
    machine.do("cp", f"{REPO}/ops/systemd/gym-supervise@.service", f"{REPO}/ops/systemd/gym-supervise@.socket", UNITS)
    home = "ProtectHome=read-only\n"  # where this machine's interpreter may be
    machine.write(f"{UNITS}/{one.service}.d/test.conf", f"[Service]\n{home}Environment=PYTHONPATH={REPO}\n")
    machine.do("systemctl", "daemon-reload")
    assert machine.run("systemd-analyze", "verify", one.service, "gym-supervise@many.socket").err == ""
    one.systemctl("start")
    assert ask(one.address) > 0
    assert exposure(machine, one.service) <= MOST_EXPOSED


def test_systemd_has_nothing_against_the_units(unit: Make, machine: Machine) -> None:
    """`systemd-analyze verify` is silent about service and socket, and the service's score is a good one."""
    one = unit("verify", bind="systemd:web", env={"SECRET": "${SECRET}"})
    machine.write(f"{CONFIGS}/verify.env", "SECRET=x\n")
    one.write_config()
    command = ["env", f"PYTHONPATH={REPO}", "SECRET=x", COMMAND, "unit", one.config]
    text = machine.do(*command)
    assert f"EnvironmentFile={CONFIGS}/verify.env" in text
    machine.write(f"{UNITS}/{one.service}", text)
    machine.write(f"{UNITS}/{one.socket}", machine.do(*command, "--socket", "127.0.0.1:8000"))
    machine.do("systemctl", "daemon-reload")
    done = machine.run("systemd-analyze", "verify", one.service, one.socket)
    assert (done.status, done.out, done.err) == (0, "", "")
    assert exposure(machine, one.service) <= MOST_EXPOSED


def exposure(machine: Machine, service: str) -> float:
    """The overall score of `systemd-analyze security`."""
    out = machine.run("systemd-analyze", "security", "--no-pager", service).out
    found = re.search(r"Overall exposure level for .*: ([0-9.]+)", out)
    assert found is not None, out
    print(found.group())
    return float(found.group(1))
