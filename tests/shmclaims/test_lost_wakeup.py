"""Why no worker ever blocks on a semaphore: a waiter that is woken and killed takes the next one's wake-up with it."""

from __future__ import annotations

import mmap
import os
import signal
import time

import posix_ipc
from model.herd import Herd, until

from shmclaims import Segment

NOW = 1_700_000_000


def sleeping(pid: int) -> bool:
    """Whether a process is asleep in the kernel."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "S"


def one_trial(semaphore: posix_ipc.Semaphore, words: memoryview) -> bool:
    """Two processes block; a token is posted and the first killed: is the token there, and the other asleep?"""
    waiters = []
    for number in (0, 1):
        words[number] = 0
        pid = os.fork()
        if not pid:
            semaphore.acquire()
            words[number] = 1
            os._exit(0)
        waiters.append(pid)
        until(lambda pid=pid: sleeping(pid), "a waiter to sleep")  # type: ignore[misc]
    semaphore.release()
    os.kill(waiters[0], signal.SIGKILL)
    os.waitpid(waiters[0], 0)
    end = time.monotonic() + 0.02
    while time.monotonic() < end and not words[1]:
        time.sleep(0.001)
    lost = semaphore.value == 1 and not words[1] and sleeping(waiters[1])
    os.kill(waiters[1], signal.SIGKILL)
    os.waitpid(waiters[1], 0)
    while semaphore.value:
        semaphore.acquire(0)
    return lost


def test_blocking_waiters_lose_a_wakeup() -> None:
    """The control: with blocking waiters the loss is real, and this test sees it."""
    words = memoryview(mmap.mmap(-1, 4096)).cast("Q")
    name = f"/gsv-lost-{os.getpid()}"
    processors = os.sched_getaffinity(0)
    semaphore = posix_ipc.Semaphore(name, posix_ipc.O_CREX, mode=0o600, initial_value=0)
    try:
        os.sched_setaffinity(0, {min(processors)})  # on one processor the woken one is killed before it runs
        assert any(one_trial(semaphore, words) for _ in range(200))
    finally:
        os.sched_setaffinity(0, processors)
        semaphore.unlink()
        semaphore.close()


def test_trying_waiters_lose_none(herd: Herd) -> None:
    """Two workers wait for a held stripe; it is posted and one is killed at once: the other gets in, each time."""
    words = memoryview(mmap.mmap(-1, 4096)).cast("Q")
    semaphore = herd.segment.stripes.semaphores[0]
    processors = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(processors)})
        for trial in range(40):
            words[0] = words[1] = words[2] = words[3] = 0
            semaphore.acquire(0)

            def waiter(number: int) -> None:
                def body(segment: Segment) -> None:
                    words[2 + number] = 1
                    segment.table.claim(b"%d-%d" % (trial, number), now=NOW, replace_gone=True, timeout=20)
                    words[number] = 1

                waiters.append(herd.fork(body, index=number))
                until(lambda: words[2 + number], "a waiter to try")

            waiters: list = []  # type: ignore[type-arg]
            waiter(0)
            waiter(1)
            semaphore.release()
            herd.kill(waiters[0])
            until(lambda: herd.repair.step(time.monotonic()) is None and words[1], "the other waiter")
            assert herd.bury(waiters[1]) == 0
            for worker in herd.segment.ring.rows():
                assert worker.state.name == "DEAD"
    finally:
        os.sched_setaffinity(0, processors)
    assert semaphore.value == 1
