"""Reloads and deaths by the hundred: what the supervisor holds is as much as before."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from whole.harness import Service, eventually
from whole.load import Load, options, write_app

from supervisor.commands.asking import ask

Make = Callable[..., Service]
MEMORY_MIB = 2.0
"""How much the supervisor's memory may differ: the allocator fills its pages differently each time."""


def counts(service: Service) -> dict[str, object]:
    """Descriptors, threads and children of supervisor and guardian, sockets, and what is in shared memory."""
    facts = service.facts
    found: dict[str, object] = {}
    for who in ("pid", "guardian"):
        pid = facts[who]
        found[f"descriptors of {who}"] = len(os.listdir(f"/proc/{pid}/fd"))
        found[f"threads of {who}"] = len(os.listdir(f"/proc/{pid}/task"))
        found[f"children of {who}"] = len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    found["runtime folder"] = len(list(service.runtime_dir.iterdir()))
    found["shared memory"] = sorted(name for name in os.listdir("/dev/shm") if facts["segments"]["app"][1:] in name)
    return found


def resident_mib(pid: int) -> float:
    """A process's own memory. The table's pages are not in it: they count as resident once they are looked at."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def at_rest(service: Service, workers: int) -> bool:
    """There are so many workers, all ready, none that drains, and nothing of a dead one."""
    rows = service.rows()
    ready = [row for row in rows.values() if row.state.name == "READY"]
    return len(rows) == len(ready) == workers and counts(service)["children of pid"] == workers


def reload(service: Service, number: int, first: int = 0) -> None:
    """So many reloads, each with other code."""
    code = Path(service.folder.parent / "code")
    for n in range(first, first + number):
        write_app(code, f"version {n}")
        told = ask(service.runtime_dir, {"command": "reload"})
        assert told["ok"], told
        told = ask(service.runtime_dir, {"command": "wait", "ticket": told["ticket"]}, seconds=60)
        assert (told["ok"], told["outcome"]) == (True, "done"), told


@pytest.mark.parametrize(
    ("warm", "number"),
    [(2, 10), pytest.param(40, 200, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
    ids=["10", "200"],
)
def test_reloads_under_load_leave_nothing(service: Make, tmp_path: Path, warm: int, number: int) -> None:
    """Every episode right, and descriptors, threads, processes, sockets, segments and memory as before."""
    code = tmp_path / "code"
    write_app(code, "one")
    running = service("mine:app", **options(code, workers=2)).start()
    supervisor = running.facts["pid"]
    reload(running, warm)
    eventually(lambda: at_rest(running, 2), "the first generations' end")
    before, memory = counts(running), resident_mib(supervisor)
    with Load(running, players=2, steps=2) as load:
        reload(running, number, first=warm)
    load.assert_all_right()
    eventually(lambda: at_rest(running, 2), "the last generation's end")
    after, grown = counts(running), resident_mib(supervisor) - memory
    print(
        f"{number} reloads, {load.tally.right} episodes right\nbefore {before}\nafter  {after}\nmemory +{grown:.2f} MiB"
    )
    assert after == before
    assert grown < MEMORY_MIB
    assert "are cut" not in running.log.read_text()
    assert running.stop() == 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_500_deaths_leave_nothing(service: Make, tmp_path: Path) -> None:
    """Real workers, killed as soon as they are ready, under load."""
    code = tmp_path / "code"
    write_app(code, "one")
    running = service("mine:app", **options(code)).start()
    supervisor = running.facts["pid"]
    before = counts(running)
    killed, memory = 0, 0.0
    with Load(running, players=2, steps=2) as load:
        while killed < 500:
            for pid, row in running.rows().items():
                if row.state.name == "READY":
                    with contextlib.suppress(ProcessLookupError):  # seen dead by the kernel, not yet by the supervisor
                        os.kill(pid, signal.SIGKILL)
                        killed += 1
            if killed < 100:
                memory = resident_mib(supervisor)  # it has settled by then
            eventually(lambda: any(row.state.name == "READY" for row in running.rows().values()), "a replacement")
    eventually(lambda: at_rest(running, 4), "the last replacements")
    after, grown = counts(running), resident_mib(supervisor) - memory
    print(f"{killed} deaths, {load.tally}\nbefore {before}\nafter  {after}\nmemory +{grown:.2f} MiB")
    assert after == before
    assert grown < MEMORY_MIB
    assert load.tally.wrong == 0
    assert running.stop() == 0
