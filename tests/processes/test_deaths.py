"""One death, and five hundred: what is done first, what is left, and that nobody else notices."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from processes.harness import CHILDREN_PER_WORKER, SPAWN_CHILDREN, Stubs, children, descriptors, stopped
from whole.harness import eventually, tagged

Make = Callable[..., Stubs]


def test_a_death_is_seen_at_once_and_the_worker_replaced(stubs: Make) -> None:
    """Its row is dead before anything else happens; the seat gets a new incarnation; the neighbour stays."""
    service = stubs(workers=2).start()
    victim, neighbour = service.pids()
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: victim not in service.pids(), "the row to be dead")
    service.wait_ready()
    eventually(lambda: len(service.pids()) == 2, "the replacement")
    assert service.pids()[1] == neighbour
    assert service.restarts() == 1
    assert f"worker 0 is gone, pid {victim}: killed by SIGKILL" in service.text
    assert service.stop() == 0


def test_a_stopped_worker_delays_nobody(stubs: Make) -> None:
    """While one does not react to anything, another one's death is noted and mended as ever."""
    service = stubs(workers=3).start()
    frozen, victim, _ = service.pids()
    os.kill(frozen, signal.SIGSTOP)
    eventually(lambda: stopped(frozen), "the worker to be stopped")
    for _ in range(3):
        os.kill(service.pids()[1], signal.SIGKILL)
        before = service.restarts()
        eventually(lambda: service.restarts() > before, "the replacement")
        service.wait_ready()
    assert stopped(frozen)
    assert victim not in service.pids()
    os.kill(frozen, signal.SIGCONT)
    assert service.stop() == 0


def test_all_die_at_once(stubs: Make) -> None:
    """Twenty deaths in one moment are twenty replacements, and nothing is lost between them."""
    service = stubs(workers=20).start("--no-pause")
    victims = service.pids()
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: service.restarts() == 20, "twenty replacements")
    service.wait_ready()
    assert not set(victims) & set(service.pids())
    assert sorted(children(service.supervisor)) == sorted(service.pids())
    assert service.stop() == 0


def test_what_the_app_started_goes_with_its_worker(stubs: Make) -> None:
    """Plain, in a session of its own, double-forked: all are ended after the grace, of the dead worker alone."""
    service = stubs(workers=2, env={"STUB_BOOT": SPAWN_CHILDREN}).start()
    everything = 2 + 2 + 2 * CHILDREN_PER_WORKER
    before = set(tagged(service.tag))
    assert len(before) == everything
    victim = service.pids()[0]
    mine = {pid for pid in before if pid == victim or victim in ancestors(pid)}
    assert len(mine) == 1 + CHILDREN_PER_WORKER
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: not mine & set(tagged(service.tag)), "the dead worker's children to be gone")
    service.wait_ready()
    eventually(lambda: len(tagged(service.tag)) == everything, "the replacement with its children")
    assert before - mine <= set(tagged(service.tag))
    assert sorted(children(service.supervisor)) == sorted(service.pids())
    assert service.stop() == 0


def ancestors(pid: int) -> list[int]:
    """A process's parents, up to the first."""
    found = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(pid)
    return found


def test_the_apps_shared_memory_does_not_leak(stubs: Make) -> None:
    """Its resource tracker, a child in the worker's process group, lives long enough to clean up after the worker."""
    make = """
        from multiprocessing import shared_memory
        memory = shared_memory.SharedMemory(create=True, size=4096)
        note("memory", memory.name)
    """
    service = stubs(workers=1, env={"STUB_BOOT": make}).start()
    name = Path("/dev/shm", service.noted("memory").lstrip("/"))
    assert name.exists()
    victim = service.pids()[0]
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: not name.exists(), "the app's shared memory to be gone")
    eventually(lambda: children(service.supervisor) == service.pids() != [victim], "nothing but the replacement")
    second = Path("/dev/shm", service.noted("memory").lstrip("/"))
    assert service.stop() == 0
    assert not second.exists()


def test_sockets_of_the_dead_are_removed(stubs: Make) -> None:
    """A killed worker leaves its private socket; the supervisor does not."""
    listen = """
        import socket
        private = socket.socket(socket.AF_UNIX)
        private.bind(spec.private_path)
        private.listen()
    """
    service = stubs(workers=2, env={"STUB_BOOT": listen}).start()
    victim = service.pids()[0]
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: victim not in service.pids() and service.restarts() == 1, "the replacement")
    service.wait_ready()
    assert sorted(path.name for path in service.runtime_dir.glob("app.*.sock")) == ["app.2.sock", "app.3.sock"]
    assert service.stop() == 0
    assert not list(service.runtime_dir.glob("*.sock"))


def test_a_stripe_of_the_dead_is_repaired(stubs: Make) -> None:
    """A worker killed inside a stripe has its token given back."""
    take = """
        if spec.incarnation == 1:
            from shmclaims.layout import Row, row_word
            spec.segment.words[row_word(1) + Row.INTENT] = 1  # stripe 0
            spec.segment.stripes.semaphores[0].acquire()
            os.kill(os.getpid(), 9)
        spec.segment.stripes.semaphores[0].acquire()
        note("taken", spec.incarnation)
        spec.segment.stripes.semaphores[0].release()
    """
    service = stubs(workers=1, env={"STUB_READY": "import os\n" + dedented(take)}).start(ready=False)
    assert service.noted("taken") > 1
    service.wait_ready()
    assert service.stop() == 0


def test_a_stopped_holder_of_a_stripe_is_killed_in_time(stubs: Make) -> None:
    """Two workers in one stripe: one dies there, the other stands still there for stall_seconds, and is killed."""
    take = """
        from shmclaims.layout import Row, row_word
        if spec.incarnation <= 2:
            spec.segment.words[row_word(spec.incarnation) + Row.INTENT] = 1  # stripe 0
            note(f"inside.{spec.incarnation}", os.getpid())
    """
    service = stubs(
        workers=2, env={"STUB_READY": "import os\n" + dedented(take)}, timeouts={"stall_seconds": 1.0}
    ).start()
    frozen, victim = service.noted("inside.1"), service.noted("inside.2")
    os.kill(frozen, signal.SIGSTOP)
    eventually(lambda: stopped(frozen), "the holder to be stopped")
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: "killing worker 0" in service.text, "the holder to be killed")
    assert f"killing worker 0, pid {frozen}: it has been inside a stripe" in service.text
    eventually(lambda: service.restarts() >= 2, "both replacements")  # which do not beat, and are killed in their turn
    assert service.stop() == 0


def dedented(code: str) -> str:
    """Code without its indentation."""
    import textwrap

    return textwrap.dedent(code)


def test_500_deaths_leave_nothing(stubs: Make) -> None:
    """Descriptors, processes, sockets and shared memory of the supervisor are as many as before."""
    die = """
        import os, socket
        private = socket.socket(socket.AF_UNIX)
        private.bind(spec.private_path)
        if (folder / "die").exists():
            os.kill(os.getpid(), 9)
    """
    service = stubs(workers=4, env={"STUB_READY": die}, log="error").start("--no-pause")
    supervisor = service.supervisor

    def counts() -> tuple[int, int, int, int, set[str]]:
        return (
            len(descriptors(supervisor)),
            len(children(supervisor)),
            len(os.listdir(f"/proc/{supervisor}/task")),
            len(list(service.runtime_dir.iterdir())),
            {name for name in os.listdir("/dev/shm") if service.facts["segments"]["app"][1:] in name},
        )

    for pid in service.pids():
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: service.restarts() == 4, "the first replacements")
    service.wait_ready()
    everything = ["app"] * 4 + ["control"]  # each worker's private socket, made just after it is ready

    def settled() -> bool:
        names = sorted(path.name.partition(".")[0] for path in service.runtime_dir.glob("*.sock"))
        return counts()[1] == 4 and names == everything

    eventually(settled, "the first dead to be reaped")
    before = counts()
    (service.folder / "die").touch()
    for pid in service.pids():
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: service.restarts() >= 504, "500 deaths", 60)
    (service.folder / "die").unlink()
    service.wait_ready()
    eventually(settled, "the last dead to be reaped")
    assert counts() == before
    assert service.stop() == 0


def test_a_worker_that_boots_too_slowly_is_replaced(stubs: Make) -> None:
    """boot_seconds are the boot's alone: a ready worker may be silent for longer."""
    slow = """
        import time
        if spec.index == 1 and not (folder / "enough").exists():
            time.sleep(600)
    """
    service = stubs(workers=2, env={"STUB_BOOT": slow}, timeouts={"boot_seconds": 0.5}, boot_tries=100).start(
        ready=False
    )
    eventually(lambda: "boot_seconds (0.5 s)" in service.text, "the kill")
    patient = service.pids()[0]
    (service.folder / "enough").touch()
    service.wait_ready()
    assert service.pids()[0] == patient
    assert service.stop() == 0


def test_an_app_that_never_boots(stubs: Make) -> None:
    """Status 3 after boot_tries, the traceback once for all workers, and the cause at every try."""
    fail = """
        from supervisor.processes import messages
        messages.send(spec.link, messages.BootFailed('Traceback (most recent call last):\\nImportError: no oxygen'))
        raise SystemExit(3)
    """
    service = stubs(workers=2, env={"STUB_BOOT": fail}, boot_tries=3).start(ready=False)
    assert service.wait() == 3
    assert service.text.count("Traceback") == 1
    assert "try 3 of 3): ImportError: no oxygen" in service.text
    assert "given up after 3 failed boots" in service.text


def test_last_words_are_heard(stubs: Make) -> None:
    """A worker that says why it fails and dies while the supervisor looks away: both come at once, in their order."""
    fail = """
        import os, signal, time
        from supervisor.processes import messages
        os.kill(os.getppid(), signal.SIGSTOP)
        while open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)
        messages.send(spec.link, messages.BootFailed('ImportError: no oxygen'))
        note("said", os.getpid())
        raise SystemExit(3)
    """
    service = stubs(workers=1, env={"STUB_BOOT": fail}, boot_tries=1).start(ready=False)
    worker = service.noted("said")
    eventually(lambda: zombie(worker), "the worker to have exited")
    os.kill(service.supervisor, signal.SIGCONT)
    assert service.wait() == 3
    assert "try 1 of 1): ImportError: no oxygen" in service.text


def zombie(pid: int) -> bool:
    """Whether a process has exited and is not reaped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_silent_death_while_booting_is_a_failed_boot(stubs: Make) -> None:
    """A crash in a C extension says nothing: the status is what there is to say."""
    service = stubs(
        workers=1, env={"STUB_BOOT": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"}, boot_tries=2
    )
    service.start(ready=False)
    assert service.wait() == 3
    assert "try 2 of 2): killed by SIGSEGV" in service.text
