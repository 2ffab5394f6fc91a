"""What the service manager is told: a fleet on paper, a real socket, a clock in the test's hands."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from core.fleets import Paper
from processes.harness import Stubs
from whole.harness import eventually

from supervisor.core import events
from supervisor.core.events import Worker
from supervisor.core.plan import ServerPlan
from supervisor.notify import Announcer, Notifier, watchdog_seconds

Make = Callable[..., Stubs]


class Manager:
    """The other end."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.notifiers: list[Notifier] = []

    def read(self) -> list[str]:
        """All lines that have come."""
        lines: list[str] = []
        while True:
            try:
                lines += self.socket.recv(65536).decode().split("\n")
            except BlockingIOError:
                return lines


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    """A socket of either kind."""
    made = Manager(f"@gsv-test-{os.getpid()}" if request.param == "abstract" else str(tmp_path / "notify"))
    yield made
    made.socket.close()
    for notifier in made.notifiers:
        notifier.close()


class Told:
    """A fleet of one or two servers, and what is said about it."""

    def __init__(self, manager: Manager, *plans: ServerPlan, watchdog: float | None = None) -> None:
        self.paper = Paper(*(plans or (ServerPlan("app", 2),)))
        self.sessions = 0
        self.notifier = Notifier(manager.address)
        manager.notifiers.append(self.notifier)
        fleet = self.paper.fleet
        self.announcer = Announcer(self.notifier, fleet, lambda _: self.sessions, watchdog_seconds=watchdog)
        self.manager = manager
        self.paper.tell(events.Started())

    def step(self, seconds: float = 0.0) -> list[str]:
        """Let time pass and say what is due; what has come."""
        self.paper.now += seconds
        self.announcer.step(self.paper.now)
        return self.manager.read()

    def ready(self, number: int = 0) -> Worker:
        """A booting worker becomes ready."""
        worker = [*self.paper.alive][number]
        self.paper.tell(events.WorkerReady(worker))
        return worker


def test_ready_is_said_once_when_every_worker_of_every_server_is(manager: Manager) -> None:
    """Nothing of it before; and it is not taken back when one dies."""
    told = Told(manager, ServerPlan("a", 2), ServerPlan("b", 1))
    assert "READY=1" not in told.step()
    told.ready(0)
    told.ready(1)
    assert "READY=1" not in told.step(5)
    told.ready(2)
    assert told.step() == ["READY=1", "STATUS=a: 2 of 2 workers ready, 0 sessions; b: 1 of 1 worker ready, 0 sessions"]
    told.paper.die([*told.paper.alive][0])
    assert told.step(5) == ["STATUS=a: 1 of 2 workers ready, 0 sessions; b: 1 of 1 worker ready, 0 sessions"]


def test_a_worker_that_fails_again_and_again_does_not_hold_up_the_start(manager: Manager) -> None:
    """The others serve; whoever waits for the service waits no longer. With none that serves he does."""
    told = Told(manager)
    first, second = told.paper.alive
    told.paper.die(second, 3)
    assert "READY=1" not in told.step()
    told.paper.tell(events.WorkerReady(first))
    assert "READY=1" in told.step()


def test_a_start_that_takes_long_is_extended(manager: Manager) -> None:
    """boot_seconds may be more than TimeoutStartSec: repeated while it starts, never when it runs."""
    told = Told(manager)
    assert "EXTEND_TIMEOUT_USEC=30000000" in told.step()
    assert told.step(4) == []
    assert told.step(1) == ["EXTEND_TIMEOUT_USEC=30000000"]
    told.ready(0)
    told.ready(1)
    told.step()
    assert told.step(60) == []


def test_the_watchdogs_ping_comes_twice_in_its_time(manager: Manager) -> None:
    """From `step`, which the loop calls: `next_timer` says when."""
    told = Told(manager, watchdog=30.0)
    told.ready(0)
    told.ready(1)
    assert "WATCHDOG=1" in told.step()
    start = told.paper.now
    pings = []
    while told.paper.now < start + 60:
        due = told.announcer.next_timer()
        assert due is not None
        assert due > told.paper.now
        if "WATCHDOG=1" in told.step(due - told.paper.now):
            pings.append(told.paper.now - start)
    assert pings == [15.0, 30.0, 45.0, 60.0]


def test_a_reload_is_announced_until_it_is_over(manager: Manager) -> None:
    """RELOADING with the time of CLOCK_MONOTONIC, then READY, also when it has failed."""
    told = Told(manager)
    told.ready(0)
    told.ready(1)
    told.step()
    told.paper.tell(events.ReloadAsked("a test", 0, force=False))
    usec = int(told.paper.now * 1e6)
    said = told.step()
    assert said == [
        "RELOADING=1",
        f"MONOTONIC_USEC={usec}",
        "EXTEND_TIMEOUT_USEC=30000000",
        "STATUS=reloading; app: 2 of 2 workers ready, 0 sessions",
    ]
    assert told.step(5) == ["EXTEND_TIMEOUT_USEC=30000000"]
    told.paper.tell(events.ConfigRefused("a test"))
    assert told.step() == ["READY=1", "STATUS=app: 2 of 2 workers ready, 0 sessions"]


def test_a_stop_is_announced(manager: Manager) -> None:
    """STOPPING at once, with who is left, and time is asked for: graceful_seconds may be long."""
    told = Told(manager)
    told.ready(0)
    told.ready(1)
    told.sessions = 1
    told.step()
    told.paper.tell(events.StopCommand())
    assert told.step(6) == [
        "STOPPING=1",
        "EXTEND_TIMEOUT_USEC=30000000",
        "STATUS=stopping; app: 2 workers left, 1 session",
    ]
    assert told.step(0.1) == []


def test_the_status_follows_at_most_once_a_second(manager: Manager) -> None:
    """Sessions come and go by the hundred; the manager tells everybody on the bus about each change."""
    told = Told(manager)
    told.ready(0)
    told.ready(1)
    told.step()
    said = []
    for _ in range(32):
        told.sessions += 1
        said += told.step(0.125)
    assert len(said) == 4
    assert said[-1] == "STATUS=app: 2 of 2 workers ready, 32 sessions"


def test_a_manager_that_is_behind_is_told_later_and_not_waited_for(manager: Manager) -> None:
    """Its queue is full: READY is not lost, and nothing blocks."""
    told = Told(manager)
    while told.notifier.send("STATUS=x"):
        pass
    told.ready(0)
    told.ready(1)
    told.announcer.step(told.paper.now)
    due = told.announcer.next_timer()
    assert due is not None
    assert due > told.paper.now
    manager.read()
    assert "READY=1" in told.step(due - told.paper.now)


def test_a_manager_that_has_gone_harms_nobody(manager: Manager, caplog: pytest.LogCaptureFixture) -> None:
    """One line says so; every message is tried, since one that is executed anew comes back."""
    told = Told(manager)
    manager.socket.close()
    if os.path.exists(manager.address):
        os.unlink(manager.address)
    for _ in range(3):
        told.announcer.step(told.paper.now)
        told.paper.now += 10
    assert caplog.text.count("cannot be notified") == 1
    told.manager = back = Manager(manager.address)
    told.ready(0)
    told.ready(1)
    assert "READY=1" in told.step()
    back.socket.close()


@pytest.mark.parametrize(("address", "lines"), [("", 0), ("vsock:2:1234", 1), ("relative/path", 1)])
def test_without_a_socket_that_can_be_had_nothing_is_sent(
    address: str, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Started by hand there is no manager; an address of another kind is named once."""
    notifier = Notifier(address)
    assert not notifier.listening
    assert notifier.send("READY=1")
    assert caplog.text.count("NOTIFY_SOCKET") == lines
    announcer = Announcer(notifier, Paper(ServerPlan("app", 1)).fleet, lambda _: 0)
    announcer.step(1.0)
    assert announcer.next_timer() is None


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "9"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_for_guardian_or_supervisor(environment: dict[str, str], expected: float | None) -> None:
    """The manager names the process that it started; a wrapper's watchdog is none of ours."""
    assert watchdog_seconds(environment, frozenset({7, 8})) == expected


def test_a_real_supervisor_notifies_and_its_workers_cannot(stubs: Make, manager: Manager) -> None:
    """From its start to its end; the app's environment has neither socket nor watchdog."""
    service = stubs(workers=2, env={"STUB_READY": "import os; note('env', dict(os.environ))"})
    service.start(env={"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "200000"})
    said: list[str] = []

    def has(line: str) -> Callable[[], bool]:
        def check() -> bool:
            said.extend(manager.read())
            return line in said

        return check

    eventually(has("READY=1"), "READY=1")
    eventually(lambda: has("")() or said.count("WATCHDOG=1") > 3, "pings")
    environment = service.noted("env")
    assert not [name for name in environment if name.startswith(("NOTIFY_", "WATCHDOG_"))]
    assert service.stop() == 0
    eventually(has("STOPPING=1"), "STOPPING=1")


def test_a_failed_start_leaves_its_reason(stubs: Make, manager: Manager) -> None:
    """`systemctl status` shows it beside the exit status."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        service = stubs(bind=f"127.0.0.1:{port}").start(ready=False, env={"NOTIFY_SOCKET": manager.address})
        assert service.wait() == 4
    (line,) = manager.read()
    assert line.startswith(f"STATUS=bind 127.0.0.1:{port}: found an address that is taken")
