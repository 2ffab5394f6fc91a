"""What a worker is, and what it has not inherited."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes.harness import Stubs, children, descriptors, run_python
from whole.harness import eventually

LOOK = """
    import atexit, ctypes, multiprocessing, multiprocess, resource, signal, subprocess, sys, threading, weakref
    import multiprocessing.util
    libc = ctypes.CDLL(None)
    value = ctypes.c_int()

    def prctl(option):
        libc.prctl(option, ctypes.byref(value), 0, 0, 0)
        return value.value

    def status(text):
        return dict(line.split(":", 1) for line in text.splitlines() if line.startswith("Sig"))

    look = "print(open('/proc/self/status').read())"
    exec_status = subprocess.run([sys.executable, "-S", "-c", look], capture_output=True, text=True).stdout
    handlers = {
        number.name: getattr(signal.getsignal(number), "__name__", None) or str(signal.getsignal(number))
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGCHLD, signal.SIGINT)
    }
    note(f"look.{spec.index}", {
        "pid": os.getpid(), "ppid": os.getppid(), "pgid": os.getpgid(0),
        "subreaper": prctl(37), "death_signal": prctl(2),
        "wakeup": signal.set_wakeup_fd(-1), "mask": [int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
        "handlers": handlers, "exec": status(exec_status),
        "environment": dict(os.environ), "folder": os.getcwd(), "path": sys.path[0],
        "kept": sorted({0, 1, 2, spec.link.fileno(), spec.stacks, multiprocess.parent_process().sentinel,
                        *(one.fileno() for one in spec.listeners), *spec.segment.descriptors()}),
        "start_method": multiprocessing.get_start_method(), "daemon": multiprocessing.current_process().daemon,
        "threads": threading.active_count(), "stdin": os.readlink("/proc/self/fd/0"),
        "descriptor_limit": resource.getrlimit(resource.RLIMIT_NOFILE),
        "parent_alive": multiprocess.parent_process().is_alive(),
    })

    class Kept: pass
    kept = Kept()
    weakref.finalize(kept, lambda: note(f"finalized.{spec.index}", 1))
    atexit.register(lambda: note(f"atexit.{spec.index}", 1))
    import time
    threading.Thread(target=lambda: (time.sleep(0.2), note(f"thread.{spec.index}", 1))).start()
    daemon = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True)
    daemon.start()
    note(f"daemon.{spec.index}", daemon.pid)
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stubs]:
    """Two servers with one worker each, started with everything that a launcher may have left behind."""
    service = Stubs(
        tmp_path_factory.mktemp("tree"),
        env={"STUB_READY": LOOK.replace("    import atexit", "    import os, atexit")},
        workers=2,
    )
    service.servers["other"] = {
        **service.servers["app"],
        "workers": 1,
        "env": {"STUB_FOLDER": str(service.folder), "OTHER": "x"},
    }
    service.servers["app"]["env"]["MINE"] = "1"
    service.start(
        env={"NOTIFY_SOCKET": "/x", "LISTEN_FDS": "0", "LISTEN_PID": "1", "LISTEN_FDNAMES": "", "WATCHDOG_USEC": "1"},
        preexec_fn=ignore_interrupts,
    )
    service.wait_ready("other")
    yield service
    if service.process is not None and service.process.poll() is None:
        service.stop()
    print(service.text)
    assert service.cleanup() == []


def ignore_interrupts() -> None:
    """What a non-interactive shell does for a command in the background; and a signal that somebody left blocked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@pytest.fixture
def seen(tree: Stubs) -> dict[str, Any]:
    """What worker 0 found."""
    found: dict[str, Any] = tree.noted("look.0")
    return found


def test_the_tree(tree: Stubs, seen: dict[str, Any]) -> None:
    """Guardian, supervisor, workers; each of the lower ones leads a process group."""
    assert children(tree.guardian) == [tree.supervisor]
    assert children(tree.supervisor) == [*tree.pids(), *tree.pids("other")]
    assert os.getpgid(tree.supervisor) == tree.supervisor
    assert seen["ppid"] == tree.supervisor
    assert seen["pgid"] == seen["pid"]


def test_a_worker_keeps_its_orphans_and_ends_with_the_supervisor(seen: dict[str, Any]) -> None:
    """It is a subreaper, and SIGKILL comes when its parent goes."""
    assert seen["subreaper"] == 1
    assert seen["death_signal"] == signal.SIGKILL


def test_signals_are_the_workers_own(seen: dict[str, Any]) -> None:
    """No wake-up descriptor, default handlers, nothing blocked, whatever the launcher had set."""
    assert seen["wakeup"] == -1
    assert seen["mask"] == []
    interrupt = seen["handlers"].pop("SIGINT")
    assert set(seen["handlers"].values()) <= {"SIG_DFL", "Handlers.SIG_DFL", "0"}
    assert interrupt == "_ignore"


def test_what_the_app_executes_can_be_interrupted(seen: dict[str, Any]) -> None:
    """A REPL under a worker has SIGINT and SIGQUIT as usual, though the launcher ignored them."""
    ignored = int(seen["exec"]["SigIgn"], 16)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        assert not ignored & 1 << (number - 1)
    assert int(seen["exec"]["SigBlk"], 16) == 0


def test_nothing_of_the_supervisors_is_open(tree: Stubs, seen: dict[str, Any]) -> None:
    """Only what the worker was given: no epoll, no pidfd, no sibling's pipe or link, no other server's socket."""
    for index, pid in enumerate(tree.pids()):
        found = {number: target for number, target in descriptors(pid).items() if number > 2}
        kept = tree.noted(f"look.{index}")["kept"]
        extra = {number: target for number, target in found.items() if number not in kept and "shm" not in target}
        assert not set(extra.values()) & set(descriptors(tree.supervisor).values()), extra
        assert not {target for target in extra.values() if "anon_inode" in target or "socket" in target}, extra
    sockets = [set(filter(lambda target: "socket" in target, descriptors(pid).values())) for pid in tree.pids()]
    others = set(filter(lambda target: "socket" in target, descriptors(tree.pids("other")[0]).values()))
    assert len(sockets[0] & sockets[1]) == 1
    pipes = [set(filter(lambda target: "pipe" in target, descriptors(pid).values())) for pid in tree.pids()]
    assert not pipes[0] & pipes[1]
    assert not sockets[0] & others


def test_environment_and_folder_are_the_servers(seen: dict[str, Any], tree: Stubs) -> None:
    """Its own variables, none of the other server's, and nothing that systemd said to the supervisor."""
    names = set(seen["environment"])
    assert "MINE" in names
    assert "OTHER" not in names
    assert not {name for name in names if name.startswith(("LISTEN_", "WATCHDOG_", "NOTIFY_"))}
    assert seen["folder"] == seen["path"] == str(tree.folder)


def test_descriptors_are_as_many_as_the_system_grants(seen: dict[str, Any]) -> None:
    """The soft limit is the launcher's 256 no longer."""
    soft, hard = seen["descriptor_limit"]
    assert soft == hard > 256


def test_the_standard_library_works_as_usual(seen: dict[str, Any]) -> None:
    """The interpreter's own start method, not daemonic, a stdin that never blocks, a parent that is known."""
    import multiprocessing

    assert seen["start_method"] == multiprocessing.get_start_method()
    assert seen["daemon"] is False
    assert seen["stdin"] == "/dev/null"
    assert seen["parent_alive"] is True


def test_a_sigterm_to_a_worker_is_the_workers_alone(tree: Stubs) -> None:
    """The supervisor hears nothing of it; the worker is replaced."""
    victim = tree.pids()[1]
    os.kill(victim, signal.SIGTERM)
    eventually(lambda: tree.restarts() == 1, "the replacement")
    tree.wait_ready()
    assert "killed by SIGTERM" in tree.text
    assert "stopping" not in tree.text


def test_exit_handlers_run_at_the_end(tree: Stubs) -> None:
    """The app's atexit, its finalizers, its threads' ends and its daemonic processes, as at any interpreter's end."""
    for index in range(2):
        tree.noted(f"daemon.{index}")
    assert tree.stop() == 0
    for name in ("atexit", "finalized", "thread"):
        for index in range(2):
            assert tree.noted(f"{name}.{index}")
    for index in range(2):
        assert not Path(f"/proc/{tree.noted(f'daemon.{index}')}").exists()


def test_the_supervisors_exit_handlers_do_not_run_in_a_worker(tmp_path: Path) -> None:
    """What was registered before the fork belongs to the supervisor."""
    done = run_python(
        """
        import atexit, os, sys, weakref
        from supervisor.processes import hygiene

        class Kept: pass
        kept = Kept()

        def register(whose):
            atexit.register(os.write, 1, f"the {whose}'s\\n".encode())
            weakref.finalize(kept, os.write, 1, f"the {whose}'s finalizer\\n".encode())

        register("parent")
        if os.fork() == 0:
            hygiene.take_own_exit_handlers()
            register("child")
            hygiene.run_exit_handlers()
            os._exit(0)
        os.wait()
        """
    )
    mine, parents = done.stdout.splitlines()[:2], done.stdout.splitlines()[2:]
    assert sorted(mine) == ["the child's", "the child's finalizer"], done.stderr
    assert sorted(parents) == ["the parent's", "the parent's finalizer"]


def test_the_standard_librarys_own_exit_handlers_stay() -> None:
    """It registers them once, when it is imported, which may have been in the supervisor."""
    done = run_python(
        """
        import multiprocessing.util, os
        from supervisor.processes import hygiene
        multiprocessing.util.Finalize(None, os.write, (1, b"the parent's "), exitpriority=1)
        if os.fork() == 0:
            hygiene.take_own_exit_handlers()
            multiprocessing.util.Finalize(None, os.write, (1, b"the child's "), exitpriority=1)
            hygiene.run_exit_handlers()
            os._exit(0)
        os.wait()
        """
    )
    assert done.stdout.split() == ["the", "child's", "the", "parent's"], done.stderr


def test_garbage_of_the_supervisors_closes_nothing_of_the_workers() -> None:
    """A socket in an uncollected cycle still knows its number, which is another file's by now."""
    done = run_python(
        """
        import gc, os, socket
        from supervisor.processes import hygiene
        gc.disable()
        class Cycle: pass
        cycle = Cycle()
        cycle.itself, cycle.socket = cycle, socket.socket()
        number = cycle.socket.fileno()
        del cycle
        if os.fork() == 0:
            hygiene.close_descriptors(frozenset())
            while os.open("/dev/null", os.O_RDONLY) != number:
                pass
            gc.collect()
            os.write(1, os.readlink(f"/proc/self/fd/{number}").encode())
            os._exit(0)
        os.wait()
        """
    )
    assert done.stdout == "/dev/null", done.stderr


def test_a_worker_whose_supervisor_has_gone_ends_at_once() -> None:
    """PDEATHSIG does not come for a parent that died before it was set."""
    done = run_python(
        """
        import os
        from supervisor.processes.linux import die_with_parent
        if (pid := os.fork()) == 0:
            die_with_parent(os.getppid() + 1)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
    )
    assert done.stdout.strip() == "1", done.stderr
