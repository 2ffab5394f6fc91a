"""Segments: made whole or not at all, told stale from live by their lock, inherited and attached."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import posix_ipc
import pytest
from model.herd import names_of
from model.strike import Strike, die

from shmclaims import NoSegment, Segment, SegmentError, names
from shmclaims.layout import HEADER, INFO_SIZE


def clean_up() -> list[str]:
    """Remove what is stale, but not the segments of whole services: other tests' are being looked at meanwhile."""
    return names.remove_stale(keep=lambda _name, info: "runtime_dir" in info)  # a service's start may come before it


NOW = 1_700_000_000


def forked(body: Callable[[], Any]) -> int:
    """Run `body` in a child; its exit code is 0 when nothing was raised."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            signal.alarm(60)
            body()
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def succeeded(pid: int) -> bool:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


class Supervisor:
    """Another process that has made a segment and lives until it is killed."""

    def __init__(self) -> None:
        reader, writer = os.pipe()

        def body() -> None:
            made = Segment.create({"server": "other"}, max_sessions=10)
            os.write(writer, made.name.encode())
            signal.pause()

        self.pid = forked(body)
        self.name = os.read(reader, 100).decode()
        os.close(reader)
        os.close(writer)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def test_a_segment_is_whole_and_private(segment: Segment) -> None:
    """Name, mode, allocation and info are as promised; so are the semaphores."""
    assert names_of(segment.name) == [
        segment.name[1:],
        *(f"sem.{segment.name[1:]}.{stripe}" for stripe in range(segment.geometry.stripes)),
    ]
    assert len(segment.name) <= 31
    found = os.stat(f"/dev/shm{segment.name}")
    assert found.st_mode & 0o777 == 0o600
    assert found.st_blocks * 512 >= found.st_size == segment.geometry.size
    assert segment.info == {"server": "test", "workers": 4}
    assert segment.supervisor_alive()
    assert repr(segment).startswith(f"<Segment {segment.name} <WorkerRing live=0 ")


def test_two_servers_have_two_segments() -> None:
    """One process may own several; each has its own name, key and lock."""
    one, other = (Segment.create({}, max_sessions=10) for _ in range(2))
    assert one.name != other.name
    assert clean_up() == [] or (names_of(one.name) and names_of(other.name))
    one.unlink()
    one.close()
    assert other.supervisor_alive()
    assert names_of(other.name) != []
    other.unlink()
    other.close()


def test_info_that_does_not_fit_is_refused() -> None:
    """The error says how much was found; nothing is left."""
    with pytest.raises(ValueError, match=f"expected at most {INFO_SIZE}"):
        Segment.create({"bind": "x" * INFO_SIZE}, max_sessions=10)


def test_attach_reads_and_cannot_write(segment: Segment) -> None:
    """Another process sees claims, rows and info through a read-only mapping, takes no stripe, and writes nothing."""
    me = segment.ring.register(0, now=NOW)
    segment.table.bind(me, 0)
    segment.table.try_claim(b"session", now=NOW)

    def reader() -> None:
        attached = Segment.attach(segment.name)
        assert attached.info == segment.info
        claim = attached.table.lookup(b"session")
        assert claim is not None
        assert claim.incarnation == me
        assert attached.table.count() == (1, 0, 1000)
        assert [row.incarnation for row in attached.ring.rows()] == [me]
        assert attached.supervisor_alive()
        assert attached.stripes.semaphores == []
        attached.table.bind(me, 0)
        for write in (
            lambda: attached.ring.register(0, now=NOW),
            lambda: attached.ring.own(me).add("requests", 1),
            lambda: attached.table.try_claim(b"other", now=NOW),
        ):
            with pytest.raises(TypeError, match="read-only"):
                write()
        attached.close()

    assert succeeded(forked(reader))


def test_attach_in_the_creators_own_process_keeps_its_lock(segment: Segment) -> None:
    """Closing any descriptor of the file would drop the lock; so the creator's own views share its mapping."""
    view = Segment.attach(segment.name)
    with pytest.raises(TypeError, match="read-only"):
        view.ring.register(0, now=NOW)
    assert view.supervisor_alive()
    view.close()
    clean_up()
    assert names_of(segment.name) != []

    def other() -> None:
        assert segment.supervisor_alive()
        clean_up()
        assert names_of(segment.name) != []

    assert succeeded(forked(other))


def test_attach_says_what_is_wrong(segment: Segment) -> None:
    """No segment, an unfinished one and one of another version are three clear errors."""
    with pytest.raises(NoSegment, match="found none of that name"):
        Segment.attach("/gsv-00000000")
    shared = posix_ipc.SharedMemory("/gsv-test0001", posix_ipc.O_CREX, mode=0o600, size=0)
    try:
        with pytest.raises(SegmentError, match="found 0 bytes"):
            Segment.attach("/gsv-test0001")
        os.ftruncate(shared.fd, segment.geometry.size)
        with pytest.raises(SegmentError, match="not complete yet"):
            Segment.attach("/gsv-test0001")
        with mmap.mmap(shared.fd, segment.geometry.size) as memory:
            fields = list(HEADER.unpack(segment._memory[: HEADER.size]))
            fields[1] = 99
            memory[: HEADER.size] = HEADER.pack(*fields)
            with pytest.raises(SegmentError, match="format 99, expected"):
                Segment.attach("/gsv-test0001")
            fields[1:3] = [1, 1 << 20]
            memory[: HEADER.size] = HEADER.pack(*fields)
            with pytest.raises(SegmentError, match="bytes, expected"):
                Segment.attach("/gsv-test0001")
    finally:
        shared.unlink()
        shared.close_fd()


def test_stale_segments_go_and_a_live_one_stays(segment: Segment) -> None:
    """Side by side: two crashed supervisors', another live one's, and our own; only the crashed ones' are removed."""
    dead, living, also_dead = Supervisor(), Supervisor(), Supervisor()
    dead.kill()
    also_dead.kill()
    attached = Segment.attach(dead.name)
    assert not attached.supervisor_alive()
    assert attached.info == {"server": "other"}
    attached.close()
    assert Segment.attach(living.name).supervisor_alive()
    clean_up()
    assert names_of(dead.name) == names_of(also_dead.name) == []
    assert names_of(living.name) != []
    assert names_of(segment.name) != []
    living.kill()
    assert living.name not in names.remove_stale(
        keep=lambda name, info: (name, info) == (living.name, {"server": "other"})
    )
    clean_up()
    assert names_of(living.name) == []


def test_a_workers_fork_neither_holds_nor_drops_the_lock() -> None:
    """A forked worker that closes all it has does not make the segment stale, nor does it keep a dead one alive."""
    segment = Segment.create({}, max_sessions=10)
    assert succeeded(forked(segment.close))

    def close_all() -> None:
        for descriptor in segment.descriptors():
            os.close(descriptor)

    assert succeeded(forked(close_all))

    def other() -> None:
        clean_up()
        assert names_of(segment.name) != []

    assert succeeded(forked(other))
    segment.unlink()
    segment.close()

    reader, writer = os.pipe()

    def supervisor() -> None:
        made = Segment.create({}, max_sessions=10)
        worker = forked(signal.pause)
        os.write(writer, f"{worker} {made.name}".encode())
        signal.pause()

    pid = forked(supervisor)
    worker, name = os.read(reader, 100).decode().split()
    os.close(reader)
    os.close(writer)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    clean_up()
    assert names_of(name) == []
    os.kill(int(worker), signal.SIGKILL)


def test_a_half_made_segment_is_stale_when_its_maker_is_dead() -> None:
    """Killed between making the file and completing it: no lock, no header, removed all the same."""
    shared = posix_ipc.SharedMemory("/gsv-00c0ffee", posix_ipc.O_CREX, mode=0o600, size=0)
    shared.close_fd()
    clean_up()
    assert not os.path.exists("/dev/shm/gsv-00c0ffee")


def test_semaphores_without_a_segment_are_removed() -> None:
    """A removal that was killed after the segment went leaves semaphores behind; the next one takes them along."""
    posix_ipc.Semaphore("/gsv-00c0ffee.3", posix_ipc.O_CREX, mode=0o600, initial_value=1).close()
    clean_up()
    assert not os.path.exists("/dev/shm/sem.gsv-00c0ffee.3")


def test_a_semaphore_that_is_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong half-way, the error is a SegmentError, and neither name nor descriptor is left."""
    monkeypatch.setattr(secrets, "token_hex", lambda _: "00c0ffee")
    before = os.listdir("/proc/self/fd")
    posix_ipc.Semaphore("/gsv-00c0ffee.0", posix_ipc.O_CREX, mode=0o600, initial_value=1).close()
    with pytest.raises(SegmentError, match="exist"):
        Segment.create({}, max_sessions=10)
    assert names_of("/gsv-00c0ffee") == []
    assert os.listdir("/proc/self/fd") == before


def test_other_names_are_left_alone() -> None:
    """Only what is named as ours is touched."""
    others = ["gsv-xyz", "gsv-0123456789", "sem.gsv-zz.1", "another"]
    for name in others:
        Path(f"/dev/shm/{name}.test").touch()
    try:
        clean_up()
        assert all(os.path.exists(f"/dev/shm/{name}.test") for name in others)
    finally:
        for name in others:
            os.unlink(f"/dev/shm/{name}.test")


def test_a_clean_up_between_the_steps_of_a_creation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another supervisor's clean-up takes the file before it is locked: the maker notices and begins again."""
    lockf = fcntl.lockf
    taken: list[str] = []

    def lock_late(descriptor: int, operation: int) -> None:
        if not taken:
            name = os.readlink(f"/proc/self/fd/{descriptor}").removeprefix("/dev/shm")
            taken.append(name)
            assert succeeded(forked(clean_up))
            assert names_of(name) == []
        lockf(descriptor, operation)

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "lockf", lock_late)
        segment = Segment.create({}, max_sessions=10)
    assert segment.name != taken[0]
    assert names_of(segment.name) != []
    segment.unlink()
    segment.close()


def test_killed_while_making_a_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """At whatever bytecode: readers find none, an unfinished one or a whole one, and the next clean-up removes it."""
    outcomes: list[str] = []
    at = 0
    status = 1
    while status:
        at += 3
        name = f"/gsv-{os.getpid() & 0xFFFF:04x}{at:04x}"
        with monkeypatch.context() as patched:
            patched.setattr(secrets, "token_hex", lambda _, name=name: name.removeprefix("/gsv-"))

            def make(at: int = at) -> None:
                with Strike(at, die):
                    Segment.create({"server": "cut off"}, max_sessions=10)

            _, status = os.waitpid(forked(make), 0)
        try:
            attached = Segment.attach(name)
        except NoSegment:
            outcomes.append("none")
        except SegmentError:
            outcomes.append("unfinished")
        else:
            assert attached.info == {"server": "cut off"}
            assert attached.table.count() == (0, 0, 10)
            assert attached.ring.rows() == []
            attached.close()
            outcomes.append("whole" if status else "finished")
        clean_up()
        assert names_of(name) == []
    assert len(outcomes) > 60
    assert outcomes[0] == "none"
    made = [one for one in outcomes if one != "none"]  # a service that starts at the same time may be first to clean up
    order = [one for number, one in enumerate(made) if number == 0 or one != made[number - 1]]
    assert order in (["unfinished", "whole", "finished"], ["unfinished", "whole"])


def test_the_mapping_outlives_its_names(segment: Segment) -> None:
    """A log-out, or a resource tracker, removes the names: workers go on, new ones too, and the supervisor can tell."""
    assert segment.missing_names() == []
    me = segment.ring.register(0, now=NOW)
    segment.table.bind(me, 0)
    segment.unlink()
    assert len(segment.missing_names()) == 1 + segment.geometry.stripes
    segment.table.try_claim(b"session", now=NOW)

    def worker() -> None:
        other = segment.ring.register(1, now=NOW)
        segment.table.bind(other, 1)
        segment.table.try_claim(b"other", now=NOW)

    assert succeeded(forked(worker))
    assert segment.table.lookup(b"other") is not None


def test_closing_twice_over_leaks_no_descriptor() -> None:
    """A hundred segments made and closed leave as many descriptors open as before."""
    before = os.listdir("/proc/self/fd")
    for _ in range(100):
        segment = Segment.create({}, max_sessions=10)
        Segment.attach(segment.name).close()
        segment.unlink()
        segment.close()
    assert os.listdir("/proc/self/fd") == before


SMALL = """
import json, os, sys
from shmclaims import Segment, SegmentError
try:
    Segment.create({}, max_sessions=int(sys.argv[1]))
except SegmentError as error:
    said = str(error)
else:
    said = None
print(json.dumps({"said": said, "left": os.listdir("/dev/shm")}))
"""


def with_small_memory(sessions: int) -> dict[str, object]:
    """Make a segment where /dev/shm is a file system of 1 MiB, in a mount namespace of its own."""
    script = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"'
    python = [sys.executable, "-c", SMALL, str(sessions)]
    environment = {**os.environ, "PYTHONPATH": str(Path(names.__file__).parent.parent)}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *python],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "Operation not permitted" in done.stderr or "permission denied" in done.stderr.lower():
        pytest.skip(f"needs the right to mount: {done.stderr.strip()}")
    assert done.stderr == ""
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount a file system of 1 MiB")
def test_too_small_a_dev_shm_is_refused_at_start() -> None:
    """Memory is allocated for real: an error with the sizes found and needed, no SIGBUS later, and nothing is left."""
    found = with_small_memory(50_000)
    said = str(found["said"])
    assert "found 1.0 MiB free of 1.0 MiB in /dev/shm" in said
    assert "needed 4.5 MiB for max_sessions 50000" in said
    assert "--shm-size" in said
    assert found["left"] == []


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount a file system of 1 MiB")
def test_a_small_dev_shm_takes_a_small_table() -> None:
    """The control: the same mount holds a table of 5,000 sessions."""
    assert with_small_memory(5_000)["said"] is None


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount a file system of 1 MiB")
def test_no_room_for_the_semaphores_is_refused_too() -> None:
    """The segment fits to the last page, its semaphores do not: refused as well, and the segment is taken back."""
    from shmclaims.layout import Geometry

    sessions = max(n for n in range(5_000, 12_000, 24) if Geometry.for_sessions(n).size <= 1 << 20)
    found = with_small_memory(sessions)
    assert "needed 1.0 MiB" in str(found["said"])
    assert found["left"] == []
