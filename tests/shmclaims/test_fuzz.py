"""The random-kill fuzz with its oracle: short runs here, 20,000 kills as a soak, and the mutants that it must see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from model.mutants import FUZZED

TESTS = Path(__file__).parent.parent


def fuzz(*options: str, timeout: float = 100) -> dict[str, Any]:
    """Run the fuzz in a process of its own (forks are cheaper there) and return its report."""
    environment = {**os.environ, "PYTHONPATH": f"{TESTS.parent}:{TESTS}"}
    command = [sys.executable, "-m", "model.fuzz", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.stderr == ""
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if report["violations"] else 0)
    return report


@pytest.mark.parametrize("shape", ["roomy", "crowded"])
def test_random_kills(shape: str) -> None:
    """Killed, stopped and drained at random: no two owners, no two inside, no missed or torn claim, no time-out."""
    report = fuzz("--seconds", "4", "--shape", shape)
    assert report["first"] == []
    assert report["violations"] == 0
    assert report["kills"] > 100
    assert report["tokens_lost"] > 0
    assert report["cross_worker"] > 100
    assert report["gone_hits"] > 0
    if shape == "crowded":
        assert report["recycled"] > 0
        assert report["retired"] > 0


RARELY_SEEN = {"no-flag-check"}  # needs luck, thus minutes: the kill points see it at once


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "mutant", [pytest.param(one, marks=pytest.mark.soak) if one in RARELY_SEEN else one for one in FUZZED]
)
def test_the_fuzz_sees(mutant: str) -> None:
    """Without this guard the same fuzz finds a violation."""
    limits = ("--seconds", "200", "--until-violation", "--claim-seconds", "1", "--pause-ms", "0.7", "--workers", "3")
    report = fuzz("--mutant", mutant, "--shape", FUZZED[mutant], *limits, timeout=250)
    assert report["violations"] > 0, report


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("shape", "kills"), [("roomy", 14_000), ("crowded", 14_000)])
def test_twenty_thousand_kills(shape: str, kills: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Both shapes together: 28,000 kills without a violation."""
    report = fuzz("--seconds", "0", "--kills", str(kills), "--shape", shape, "--seed", str(os.getpid()), timeout=3000)
    with capsys.disabled():
        print(f"\n{json.dumps(report)}")
    assert report["kills"] >= kills
    assert report["violations"] == 0, report["first"]
