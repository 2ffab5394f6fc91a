"""A dead worker's sessions with `gone_retention_seconds`: gone for so long, and then their ids are free."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

from whole.harness import Service, eventually


def test_gone_sessions_are_retired_when_the_config_says_so(service: Callable[..., Service]) -> None:
    """Before that 410; afterwards the id starts empty on one worker, as the log says."""
    gym = service("whole.apps:gym", workers=2, claims={"gone_retention_seconds": 1.0}).start()
    _, headers, body = gym.connect().ask("POST", "/seed_session", body={"n": 1})
    cookie, seeded = headers["set-cookie"].split(";")[0], json.loads(body)
    os.kill(seeded["pid"], signal.SIGKILL)
    eventually(lambda: seeded["pid"] not in gym.rows(), "the death to be seen")
    survivor = gym.connect()
    status, _, _ = survivor.ask("POST", "/show", headers={"cookie": cookie})
    assert status == 410

    def retired() -> bool:
        with gym.segment() as segment:
            return segment.table.lookup(seeded["session"].encode()) is None

    eventually(retired, "the gone session to be retired")
    gym.wait_ready()
    seen = [json.loads(c.ask("POST", "/show", headers={"cookie": cookie})[2]) for c in gym.connections().values()]
    assert [reply["state"] for reply in seen] == [None, None]
    assert len({reply["pid"] for reply in seen}) == 1
    assert "retired" in gym.log.read_text()
    assert gym.stop() == 0
