"""Spin on the model of stripe and repair: the model holds, each mutant fails. A soak: `tests/install-spin` first."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

MODEL = Path(__file__).parent / "stripe.pml"
MUTANTS = (
    "NOQUIESCE",
    "NOFLAG",
    "NOSETTLE",
    "HOLDERONLY",
    "READYONLY",
    "CLEARFIRST",
    "NOABANDON",
    "POSTALWAYS",
    "BLOCKING",
)

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]


def verify(folder: Path, *defines: str) -> tuple[int, int, str]:
    """Search the model's whole state space; (errors, states, what the verifier said)."""
    missing = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
    assert not missing, f"found no {' and no '.join(missing)}: run tests/install-spin"
    flags = [f"-D{define}" for define in defines]
    subprocess.run(["spin", *flags, "-a", str(MODEL)], cwd=folder, check=True, capture_output=True, timeout=60)
    compile_it = ["gcc", "-w", "-O2", "-DSAFETY", "-DNOFAIR", "-DCOLLAPSE", "-DMEMLIM=6000", "-o", "pan", "pan.c"]
    subprocess.run(compile_it, cwd=folder, check=True, capture_output=True, timeout=120)
    done = subprocess.run(["./pan", "-m100000"], cwd=folder, check=False, capture_output=True, text=True, timeout=3000)
    errors = re.search(r"errors: (\d+)", done.stdout)
    states = re.search(r"^\s*([\d.e+]+) states, stored", done.stdout, re.MULTILINE)
    assert errors, done.stdout + done.stderr
    assert states, done.stdout + done.stderr
    return int(errors[1]), int(float(states[1])), done.stdout


@pytest.mark.parametrize(
    "size",
    [
        ("N=2", "KILLS=3", "THROWS=2", "OPS=2"),
        ("N=3", "KILLS=2", "THROWS=1", "OPS=1"),
    ],
    ids=["two workers", "three workers"],
)
def test_the_model_holds(tmp_path: Path, size: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Kills and exceptions at any step: one inside, one token, one owner, nobody waits for ever, all of it searched."""
    errors, states, said = verify(tmp_path, *size)
    with capsys.disabled():
        print(f"\nspin {' '.join(size)}: {states:,} states, {errors} errors")
    assert errors == 0, said
    assert "out of memory" not in said
    assert "max search depth too small" not in said
    assert states > 1_000_000


def test_no_part_of_the_model_is_unreachable(tmp_path: Path) -> None:
    """A model that never gets to its assertions would hold as well."""
    _, _, said = verify(tmp_path, "N=2", "KILLS=1", "THROWS=1", "OPS=2")
    assert "(0 of" in said.split("unreached in proctype worker")[1].split("unreached")[0]
    assert "(0 of" in said.split("unreached in proctype supervisor")[1]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_fails(tmp_path: Path, mutant: str) -> None:
    """Each guard that is taken out of the model is missed by it, with kills alone where kills are enough."""
    throws = 1 if mutant == "NOABANDON" else 0
    errors, _, said = verify(tmp_path, "N=2", "KILLS=1", f"THROWS={throws}", "OPS=2", mutant)
    assert errors > 0, said
