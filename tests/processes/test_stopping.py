"""The end of a service, by every road."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import textwrap
from collections.abc import Callable

import pytest
from processes.harness import CHILDREN_PER_WORKER, SPAWN_CHILDREN, Stubs, children, stopped
from processes.namespaces import UNSHARE, is_first, needs_namespaces
from processes.terminal import Terminal
from whole.harness import eventually, tagged

Make = Callable[..., Stubs]

NOTE_STOP = {
    "STUB_STOP": """
        import time
        note(f"stop.{spec.index}", time.monotonic())
        while not (folder / "quiet").exists():
            time.sleep(0.01)
        note(f"quiet.{spec.index}", time.monotonic())
    """,
    "STUB_FINISH": 'import time; note(f"finish.{spec.index}", time.monotonic())',
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_goes_in_order(stubs: Make, number: int) -> None:
    """All stop accepting; nobody shuts down before the last one is quiet; status 0."""
    service = stubs(workers=3, env=NOTE_STOP).start()
    service.signal(number)
    for index in range(3):
        service.noted(f"stop.{index}")
    assert service.states() == ["STOPPING"] * 3
    assert not list(service.folder.glob("finish.*"))
    (service.folder / "quiet").touch()
    assert service.wait() == 0
    quiet = [service.noted(f"quiet.{index}") for index in range(3)]
    finish = [service.noted(f"finish.{index}") for index in range(3)]
    assert max(quiet) <= min(finish)


def test_clients_are_refused_as_soon_as_a_stop_begins(stubs: Make) -> None:
    """The supervisor's copy of the public socket does not keep them waiting in a backlog that nobody reads."""
    env = {
        **NOTE_STOP,
        "STUB_STOP": "for one in spec.listeners: one.close()\n" + textwrap.dedent(NOTE_STOP["STUB_STOP"]),
    }
    service = stubs(workers=2, env=env, timeouts={"graceful_seconds": 600}).start()
    port = service.port
    service.signal(signal.SIGTERM)
    for index in range(2):
        service.noted(f"stop.{index}")

    def refused() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED

    eventually(refused, "the port to be closed")
    (service.folder / "quiet").touch()
    assert service.wait() == 0


@pytest.mark.parametrize("numbers", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)])
def test_a_second_signal_ends_everything_at_once(stubs: Make, numbers: tuple[int, int]) -> None:
    """Without waiting for anybody, not even for a stopped worker or for the app's children."""
    env = {**NOTE_STOP, "STUB_BOOT": SPAWN_CHILDREN}
    service = stubs(workers=2, env=env, timeouts={"graceful_seconds": 600}).start()
    os.kill(service.pids()[1], signal.SIGSTOP)
    service.signal(numbers[0])
    service.noted("stop.0")
    service.signal(numbers[1])
    assert service.wait() == 0
    assert "second signal" in service.text
    assert tagged(service.tag) == {}


def test_quit_ends_everything_at_once(stubs: Make) -> None:
    """As the first thing."""
    service = stubs(env=NOTE_STOP, timeouts={"graceful_seconds": 600}).start()
    service.signal(signal.SIGQUIT)
    assert service.wait() == 0
    assert not list(service.folder.glob("stop.*"))


@pytest.mark.parametrize("target", ["guardian", "supervisor", "both"])
def test_one_stop_whoever_gets_the_signal(stubs: Make, target: str) -> None:
    """`stop` and systemd may signal either; a service manager that signals both means one stop."""
    service = stubs(workers=1, env=NOTE_STOP, timeouts={"graceful_seconds": 600}).start()
    pids = {"guardian": [service.guardian], "supervisor": [service.supervisor]}
    for pid in pids.get(target, [service.supervisor, service.guardian]):
        os.kill(pid, signal.SIGTERM)
    service.noted("stop.0")
    if target == "both":
        # Forwarded signals are in order: once the HUP is in the log, what came before it has been judged.
        service.signal(signal.SIGHUP)
        eventually(lambda: "SIGHUP" in service.text, "the guardian to have forwarded everything")
    (service.folder / "quiet").touch()
    assert service.wait() == 0
    assert service.noted("finish.0")
    assert "killing" not in service.text


def test_what_does_not_end_in_time_is_killed_with_its_children(stubs: Make) -> None:
    """graceful_seconds are a promise: a worker that ignores its orders goes, and so does what the app started."""
    env = {"STUB_BOOT": SPAWN_CHILDREN, "STUB_STOP": "import time\nwhile True: time.sleep(1)"}
    service = stubs(workers=2, env=env, timeouts={"graceful_seconds": 0.5}).start()
    assert len(tagged(service.tag)) == 2 + 2 + 2 * CHILDREN_PER_WORKER
    assert service.stop() == 0
    assert "graceful_seconds (0.5 s)" in service.text
    assert tagged(service.tag) == {}


def test_an_orderly_end_leaves_nothing_of_the_app(stubs: Make) -> None:
    """Children that the app has forgotten are gone with their worker, whatever session they are in."""
    service = stubs(workers=2, env={"STUB_BOOT": SPAWN_CHILDREN}).start()
    assert len(tagged(service.tag)) == 2 + 2 + 2 * CHILDREN_PER_WORKER
    assert service.stop() == 0
    assert tagged(service.tag) == {}


def test_a_stop_during_the_boot_does_not_wait_for_it(stubs: Make) -> None:
    """An import of minutes reads no message: SIGTERM ends it."""
    env = {"STUB_BOOT": 'note(f"boot.{spec.index}", 1)\nimport time\ntime.sleep(600)'}
    service = stubs(workers=2, env=env, timeouts={"graceful_seconds": 600}).start(ready=False)
    for index in range(2):
        service.noted(f"boot.{index}")
    assert service.stop() == 0
    assert "killing" not in service.text


def test_a_stopped_worker_holds_up_the_end_only_until_the_deadline(stubs: Make) -> None:
    """SIGSTOP is no shelter."""
    service = stubs(workers=2, timeouts={"graceful_seconds": 1}).start()
    victim = service.pids()[0]
    os.kill(victim, signal.SIGSTOP)
    eventually(lambda: stopped(victim), "the worker to be stopped")
    assert service.stop() == 0
    assert f"killing worker 0, pid {victim}" in service.text


def test_ctrl_c_in_a_terminal_is_handled_once(stubs: Make) -> None:
    """The terminal signals the guardian's group alone; workers hear of it from the supervisor; a second one forces."""
    catch = """
        import signal
        signal.signal(signal.SIGINT, lambda *_: note(f"interrupted.{spec.index}", 1))
    """
    service = stubs(workers=2, env={**NOTE_STOP, "STUB_BOOT": catch}, timeouts={"graceful_seconds": 600})
    service.write_config()
    with Terminal(service.command(), service.environment) as terminal:
        service.process = terminal
        service.wait_ready()
        terminal.press(b"\x03")
        for index in range(2):
            service.noted(f"stop.{index}")
        (service.folder / "quiet").touch()
        shown = terminal.read_all()
        assert service.wait() == 0
    assert shown.count("stopping, within") == 1
    assert "killing" not in shown
    assert not list(service.folder.glob("interrupted.*"))


def test_a_terminal_that_stops_background_writers_stops_nobody(stubs: Make) -> None:
    """Under `stty tostop` workers and supervisor, which are in the background, may write all the same."""
    write = 'import os\nos.write(2, b"a line of the app\\n")\nnote("written", 1)'
    service = stubs(workers=1, env={"STUB_READY": write})
    service.write_config()
    with Terminal(service.command(), service.environment, "tostop") as terminal:
        service.process = terminal
        service.wait_ready()
        service.noted("written")
        service.signal(signal.SIGTERM)
        shown = terminal.read_all()
        assert service.wait() == 0
    assert "a line of the app" in shown
    assert "SIGTTOU" not in shown


def test_the_control_socket_stops(stubs: Make) -> None:
    """It says who is there, takes the stop, and refuses what it does not know; asked twice it is still one stop."""
    service = stubs(workers=1, env=NOTE_STOP, timeouts={"graceful_seconds": 600}).start()
    answer = ask(service, {"command": "ping"})
    assert (answer["ok"], answer["pid"], answer["guardian"]) == (True, service.supervisor, service.guardian)
    assert ask(service, {"command": "fly"}) == {
        "ok": False,
        "error": "command 'fly' is not available in this version",
    }
    for _ in range(2):
        assert ask(service, {"command": "stop"}) == {"ok": True, "pid": service.supervisor}
    service.noted("stop.0")
    (service.folder / "quiet").touch()
    assert service.wait() == 0
    assert "killing" not in service.text


def ask(service: Stubs, request: dict[str, str]) -> dict[str, object]:
    """One request over the control socket."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(service.runtime_dir / "control.sock"))
        client.sendall(json.dumps(request).encode() + b"\n")
        answer: dict[str, object] = json.loads(client.makefile("rb").read())
        return answer


@needs_namespaces
def test_the_whole_service_as_pid_1(stubs: Make) -> None:
    """In a container: it serves, mends deaths, and SIGTERM from outside ends it with all that the app started."""
    service = stubs(workers=2, env={"STUB_BOOT": SPAWN_CHILDREN}).start(ready=False, wrap=UNSHARE)
    eventually(lambda: service.text.count("is ready") == 2, "both workers")
    first = next(pid for pid in tagged(service.tag) if is_first(pid))
    worker = children(children(first)[0])[0]
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: service.text.count("is ready") == 3, "the replacement")
    os.kill(first, signal.SIGTERM)
    assert service.wait() == 0
    assert tagged(service.tag) == {}
    assert "supervisor[2]" in service.text
