"""The control socket, in this process: what it answers, and that no client holds it up."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from supervisor import control
from supervisor.control import IDLE_SECONDS, MAX_CONNECTIONS, MAX_REQUEST_BYTES, Control, Reply


class Served:
    """A control socket and its clients; time is the test's."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "control.sock"
        self.asked: list[Mapping[str, Any]] = []
        self.owed: list[Reply] = []
        self.control = Control(str(self.path), self.answer)
        self.clients: list[socket.socket] = []

    def answer(self, request: Mapping[str, Any], reply: Reply) -> Mapping[str, Any] | None:
        """Note the request; "later" is answered later, "fail" fails."""
        self.asked.append(request)
        if request["command"] == "fail":
            raise ValueError("no")
        if request["command"] == "later":
            self.owed.append(reply)
            return None
        return {"ok": True}

    def client(self, data: bytes = b"") -> socket.socket:
        """A connection that has said something."""
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(5)
        one.connect(str(self.path))
        one.sendall(data)
        self.clients.append(one)
        return one

    def turn(self, now: float = 0.0) -> None:
        """What the loop does, until there is nothing more to do."""
        for _ in range(50):
            self.control.handle(now)
        self.control.step(now)


@pytest.fixture
def served() -> Iterator[Served]:
    """A control socket in a folder with a short path."""
    with tempfile.TemporaryDirectory() as folder:
        one = Served(Path(folder))
        before = len(os.listdir("/proc/self/fd")) - 2
        yield one
        for client in one.clients:
            client.close()
        one.turn()
        assert len(os.listdir("/proc/self/fd")) == before + 2
        one.control.close()


def reply(client: socket.socket) -> Any:
    """A client's whole answer, or None when the connection was closed without one."""
    data = client.makefile("rb").read()
    return json.loads(data) if data else None


def test_one_line_asks_and_one_line_answers(served: Served) -> None:
    """Then the connection is closed; the socket is this user's alone."""
    client = served.client(b'{"command": "ping"}\n')
    served.turn()
    assert reply(client) == {"ok": True}
    assert served.asked == [{"command": "ping"}]
    assert stat.S_IMODE(served.path.stat().st_mode) == 0o600


def test_a_request_may_come_in_pieces(served: Served) -> None:
    """Byte by byte, with others in between."""
    client = served.client()
    other = served.client(b'{"command": "stop"}\n')
    for byte in b'{"command": "ping"}\n':
        assert served.asked.count({"command": "ping"}) == 0
        client.sendall(bytes([byte]))
        served.turn()
    assert reply(client) == reply(other) == {"ok": True}


@pytest.mark.parametrize("line", [b"stop", b"[]", b'"stop"', b"{", b"\xff\xfe", b"[" * 60_000])
def test_what_is_no_request_is_answered_with_an_error(served: Served, line: bytes) -> None:
    """It says what was expected; nothing is done."""
    client = served.client(line + b"\n")
    served.turn()
    assert reply(client)["ok"] is False
    assert served.asked == []


def test_a_request_without_end_is_cut_off(served: Served) -> None:
    """At a bounded size."""
    client = served.client()
    client.setblocking(False)
    sent = 0
    for _ in range(1000):
        try:
            sent += client.send(b"x" * 65536)
        except BlockingIOError:
            served.turn()
        except (BrokenPipeError, ConnectionResetError):
            break
    else:
        pytest.fail("the connection stays open")
    assert sent < 20 * MAX_REQUEST_BYTES


def test_a_silent_client_is_closed(served: Served) -> None:
    """After a while, and the loop is told when that is."""
    client = served.client(b'{"command"')
    served.control.handle(100.0)
    assert served.control.step(100.0) == 100.0 + IDLE_SECONDS
    served.turn(100.0 + IDLE_SECONDS - 0.1)
    assert served.control.step(100.0) is not None
    served.turn(100.0 + IDLE_SECONDS)
    assert served.control.step(100.0) is None
    assert reply(client) is None


def test_too_many_clients_are_turned_away(served: Served) -> None:
    """Those that are there are served; there is room again when they have gone."""
    first = [served.client() for _ in range(MAX_CONNECTIONS)]
    served.turn()
    late = served.client()
    served.turn()
    assert reply(late) is None
    first[0].sendall(b'{"command": "ping"}\n')
    served.turn()
    assert reply(first[0]) == {"ok": True}
    again = served.client(b'{"command": "ping"}\n')
    served.turn()
    assert reply(again) == {"ok": True}


def test_a_client_that_goes_away_is_forgotten(served: Served) -> None:
    """Before, in the middle of, or after its request."""
    for data in (b"", b'{"comm', b'{"command": "ping"}\n'):
        served.client(data).close()
        served.turn()
    assert served.control.step(0.0) is None


def test_an_answer_may_come_later(served: Served) -> None:
    """The connection stays, however long that takes, and others are served meanwhile; a second answer is none."""
    client = served.client(b'{"command": "later"}\n')
    served.turn()
    served.turn(100 * IDLE_SECONDS)
    other = served.client(b'{"command": "ping"}\n')
    served.turn(100 * IDLE_SECONDS)
    assert reply(other) == {"ok": True}
    served.owed[0]({"ok": True, "late": 1})
    served.owed[0]({"ok": True, "late": 2})
    assert reply(client) == {"ok": True, "late": 1}
    assert served.control.step(0.0) is None


def test_a_late_answer_finds_its_client_gone(served: Served) -> None:
    """It goes nowhere, and never to a later connection with the same descriptor."""
    first = served.client(b'{"command": "later"}\n')
    served.turn()
    (descriptor,) = served.control._connections
    after = socket.socket(socket.AF_UNIX)
    after.settimeout(5)
    first.close()
    served.turn()
    filled = []
    while (lowest := os.dup(0)) < descriptor:
        filled.append(lowest)
    os.close(lowest)
    after.connect(str(served.path))
    after.sendall(b'{"command": "later"}\n')
    served.turn()
    assert list(served.control._connections) == [descriptor]
    served.owed[0]({"ok": True, "for": "nobody"})
    served.owed[1]({"ok": True, "for": "after"})
    assert reply(after) == {"ok": True, "for": "after"}
    after.close()
    for one in filled:
        os.close(one)


def test_a_command_that_fails_is_answered_so(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """A fault of ours costs that answer, not the service."""
    client = served.client(b'{"command": "fail"}\n')
    served.turn()
    assert reply(client) == {"ok": False, "error": "the supervisor failed at it: ValueError('no'); its log has more"}
    assert "the command 'fail' failed" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_another_user_is_turned_away(served: Served) -> None:
    """Also when the folder lets him through: the peer's uid decides."""
    served.path.chmod(0o666)
    served.path.parent.chmod(0o755)
    code = (
        "import os, socket, sys; os.setuid(65534); one = socket.socket(socket.AF_UNIX); one.connect(sys.argv[1])\n"
        'one.sendall(b\'{"command": "stop"}\\n\'); print(one.recv(100))'
    )
    with subprocess.Popen(
        [sys.executable, "-S", "-c", code, str(served.path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as other:
        while other.poll() is None:
            served.control.handle(0.0)
        assert other.stdout is not None
        assert b"true" not in other.stdout.read()
    assert served.asked == []
    assert control.MAX_CONNECTIONS > 0
