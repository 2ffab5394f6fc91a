"""The link between the supervisor and a worker."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator

import msgspec
import pytest
from processes.harness import Stubs
from whole.harness import eventually

from supervisor.processes import messages
from supervisor.processes.messages import BootFailed, Drained, Finish, LinkClosed, Quiet, Ready, StopAccepting

Pair = tuple[socket.socket, socket.socket]
Make = Callable[..., Stubs]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Both ends: the supervisor's and the worker's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    yield ours, theirs
    ours.close()
    theirs.close()


def test_every_message_arrives_whole_and_in_order(pair: Pair) -> None:
    """In both directions; nothing yet is None, not an end."""
    ours, theirs = pair
    assert messages.receive_from_worker(ours) is None
    said: list[messages.FromWorker] = [Ready(), BootFailed("Traceback: \N{SNOWMAN}"), Quiet(), Drained()]
    for message in said:
        assert messages.send(theirs, message)
    assert [messages.receive_from_worker(ours) for _ in said] == said
    told: list[messages.ToWorker] = [StopAccepting(), Finish(2.5)]
    for order in told:
        assert messages.send(ours, order)
    assert [messages.receive_to_worker(theirs) for _ in told] == told


def test_a_traceback_of_any_size_arrives(pair: Pair) -> None:
    """Cut at its beginning, since the error stands at the end."""
    ours, theirs = pair
    assert messages.send(theirs, BootFailed("\N{GRINNING FACE}" * 1_000_000 + "ImportError"))
    received = messages.receive_from_worker(ours)
    assert isinstance(received, BootFailed)
    assert received.traceback.startswith("[...]")
    assert received.traceback.endswith("ImportError")


def test_what_was_said_before_the_end_is_read_first(pair: Pair) -> None:
    """Then the end is seen, on both sides."""
    ours, theirs = pair
    messages.send(theirs, Ready())
    theirs.close()
    assert messages.receive_from_worker(ours) == Ready()
    with pytest.raises(LinkClosed):
        messages.receive_from_worker(ours)
    with pytest.raises(LinkClosed):
        messages.send(ours, StopAccepting())


def test_an_end_that_does_not_read_is_not_waited_for(pair: Pair) -> None:
    """A full buffer is said, not waited for."""
    ours, _ = pair
    assert any(not messages.send(ours, StopAccepting()) for _ in range(100_000))


def test_what_is_no_message_is_refused(pair: Pair) -> None:
    """Bytes of another kind, and messages of the other direction."""
    ours, theirs = pair
    for data in (b"hello", msgspec.msgpack.encode({"type": "finish", "seconds": 1.0})):
        theirs.send(data)
        with pytest.raises(msgspec.DecodeError):
            messages.receive_from_worker(ours)


def test_a_worker_that_talks_nonsense_harms_nobody(stubs: Make) -> None:
    """It is said in the log; its death is noticed as ever, and the others go on."""
    env = {"STUB_READY": 'spec.link.send(b"hello") if spec.incarnation == 1 else None'}
    service = stubs(workers=2, env=env).start()
    eventually(lambda: "worker 0 sent something unknown" in service.text, "the warning")
    os.kill(service.pids()[0], signal.SIGKILL)
    eventually(lambda: service.restarts() == 1, "the replacement")
    service.wait_ready()
    assert service.stop() == 0


def test_a_worker_that_is_ready_twice_harms_nobody(stubs: Make) -> None:
    """A message that does not fit the worker's state names both and changes nothing."""
    ready = "from supervisor.processes import messages\nmessages.send(spec.link, messages.Ready())"
    service = stubs(workers=1, env={"STUB_READY": ready}).start()
    eventually(lambda: "'said ready' cannot happen in state 'ready'" in service.text, "the warning")
    assert service.states() == ["READY"]
    assert service.stop() == 0
