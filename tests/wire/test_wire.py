"""The wire: each case directly, through a relay and on a connection that is handed over, byte for byte."""

from __future__ import annotations

import asyncio

import pytest
from wire.cases import CASES
from wire.play import normal
from wire.script import Case
from wire.show import play_all, verdict
from wire.stacks import STACKS, Result, Stack

ROWS = [(stack, case) for stack in STACKS for case in CASES if case.is_for(stack.name)]
IDS = [f"{stack.name}, {case.group}, {case.name}" for stack, case in ROWS]


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> dict[str, dict[str, Result]]:
    """What became of the chosen cases: they are played at once."""
    chosen = {item.name for item in request.session.items if item.path == request.path}
    rows = [row for row, name in zip(ROWS, IDS, strict=True) if f"test_same_bytes[{name}]" in chosen]
    stacks = [stack for stack in STACKS if not stack.missing and any(row[0] is stack for row in rows)]
    cases = [case for case in CASES if any(row[1] is case for row in rows)]
    return asyncio.run(play_all(stacks, cases))


@pytest.mark.parametrize(("stack", "case"), ROWS, ids=IDS)
def test_same_bytes(stack: Stack, case: Case, results: dict[str, dict[str, Result]]) -> None:
    """A client cannot tell a relayed connection, or one that was handed over, from a direct one, nor can the app."""
    if stack.missing:
        pytest.skip(f"not installed: {', '.join(stack.missing)}")
    found = verdict(case, stack.name, results[stack.name][case.slug])
    assert found in ("equal", "may differ"), found


CHUNKED = b"HTTP/1.1 200 OK\r\nDate: Tue\r\nTransfer-Encoding: chunked\r\nx: y\r\n\r\n"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n", b"2\r\nab\r\n0\r\n\r\n", True),
        (b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n", b"2\r\nab\r\n", False),
        (b"1\r\na\r\n0\r\n\r\n", b"1\r\nb\r\n0\r\n\r\n", False),
        (b"1\r\na\r\n0\r\n\r\n", b"1\r\na\r\n0\r\nx: y\r\n\r\n", False),
    ],
    ids=["cut elsewhere", "no end", "other bytes", "trailers"],
)
def test_what_joining_keeps(one: bytes, other: bytes, same: bool) -> None:
    """Joined chunks still tell a whole body from one that is cut."""
    assert (normal(CHUNKED + one, joined=True) == normal(CHUNKED + other, joined=True)) is same
    assert normal(CHUNKED + one, joined=False) != normal(CHUNKED + other, joined=False)
    assert b"Tue" not in normal(CHUNKED + one, joined=False)
