"""The table that `make test-clients` shows at its end."""

from __future__ import annotations

from typing import Any

import pytest
from clients.table import TABLE


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what was seen."""
    for line in TABLE.lines():
        terminalreporter.write_line(line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here is for `make test-clients`."""
    for item in items:
        if "clients" in item.path.parts:
            item.add_marker(pytest.mark.clients)
