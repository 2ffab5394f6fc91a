"""The services that are put under stress: a counter-like server, and an agent server in front of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from running_examples.services import example
from whole.harness import REPO, Service

CAPACITY = 20_000
RESOURCES = "resources"
QUIET = {"access_log": False}  # as Gym runs its servers


class Services:
    """Both, with the files of what was created."""

    def __init__(self, folder: Path, *, window_seconds: float, workers: int, agents: int) -> None:
        self.window_seconds = window_seconds
        self.created = folder / "created"
        self.created.mkdir(parents=True)
        window = {"session_close_retry_window_seconds": window_seconds}
        claims = {"max_sessions": CAPACITY}
        place = folder / RESOURCES
        place.mkdir()
        resources = Service(
            place,
            "stress.app:make",
            factory=True,
            env={"STRESS_DIR": str(self.created), "PYTHONPATH": str(REPO)},
            workers=workers,
            affinity={"preset": "gym-resources", **window},
            claims=claims,
            uvicorn=QUIET,
        ).start()
        self.by_name = {RESOURCES: resources}
        self.by_name["agent"] = example(
            folder / "agent",
            "agent",
            workers=agents,
            affinity=window,
            claims=claims,
            uvicorn=QUIET,
            env={"RESOURCES_URL": resources.url},
        ).start()

    @property
    def resources(self) -> Service:
        """The counter-like server."""
        return self.by_name[RESOURCES]

    def live_claims(self) -> int:
        """Claims on both."""
        total = 0
        for service in self.by_name.values():
            with service.segment() as segment:
                total += segment.table.count()[0]
        return total

    def gone_claims(self) -> int:
        """Sessions of dead workers that the table still has."""
        with self.resources.segment() as segment:
            return int(segment.table.count()[1])

    def sessions_left(self) -> int:
        """What the counter-like server's workers still hold."""
        connections = self.resources.connections()
        return sum(json.loads(connection.ask("GET", "/left")[2]) for connection in connections.values())

    def created_twice(self) -> int:
        """Sessions that two workers have created."""
        by_session: Counter[str] = Counter()
        for path in self.created.iterdir():
            by_session.update(set(path.read_text().split()))
        return sum(workers > 1 for workers in by_session.values())

    def forget_created(self) -> None:
        """The next scenario begins."""
        for path in self.created.iterdir():
            with path.open("r+") as file:
                file.truncate()

    def stop(self) -> list[str]:
        """Stop both; what was left."""
        left = []
        for service in reversed(list(self.by_name.values())):
            status = service.stop()
            left += service.cleanup()
            if status:
                left.append(f"exit status {status}")
        return left
